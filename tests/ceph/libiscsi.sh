# libiscsi's test suite against an image.
# seconds: 400
# tools: iscsi-test-cu
rbd create --size 64M rbd/tested
# Of larger physical blocks a test of the suite expects too much.
serve_image rbd:rbd/tested,physical=512
iscsi-test-cu --dataloss --test ALL "$iscsi" >suite 2>&1 || true
# A line with its counts: all, run, passed, failed.
set -- $(sed -n 's/^ *tests  *//p' suite)
[ "${2:-0}" -gt 200 ] || fail "the suite did not come to its end: $(tail -n 20 suite)"
is "failed tests: $(grep -B 8 FAILED suite)" "$4" 0
