//! Metadata contexts, from their negotiation to the block status.

use super::*;

/// An export's name and queries.
pub(super) fn queries(name: &str, queries: &[&str]) -> Vec<u8> {
    let string = |text: &str| {
        let length = u32::try_from(text.len()).expect("short");
        [&length.to_be_bytes()[..], text.as_bytes()].concat()
    };
    let count = u32::try_from(queries.len()).expect("few");
    let strings: Vec<_> = queries.iter().copied().map(string).collect();
    [string(name), count.to_be_bytes().to_vec(), strings.concat()].concat()
}

/// Answers to an option on a connection with structured replies: their kinds and contents.
fn answers(number: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut machine = Server::new(export(), 4);
    let mut said = vec![0, 0, 0, 3];
    said.extend(option_bytes(option::STRUCTURED_REPLY, &[]));
    feed(&mut machine, &said, &mut Wire::default()).expect("no violation");
    let mut wire = Wire::default();
    feed(&mut machine, &option_bytes(number, data), &mut wire).expect("no violation");
    let (mut left, mut answers) = (&wire.bytes[..], Vec::new());
    while let Some((head, rest)) = left.split_first_chunk::<20>() {
        let number =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (data, after) = rest.split_at(number(16) as usize);
        answers.push((number(12), data.to_vec()));
        left = after;
    }
    answers
}

#[test]
fn lists_its_metadata_context_and_takes_no_other() {
    let context = |id: u32| {
        let named = [&id.to_be_bytes()[..], b"base:allocation"].concat();
        vec![(reply::META_CONTEXT, named), (reply::ACK, vec![])]
    };
    let none = vec![(reply::ACK, vec![])];
    let (list, set) = (option::LIST_META_CONTEXT, option::SET_META_CONTEXT);
    let other = "qemu:dirty-bitmap:b";
    for (number, asked, expected) in [
        (list, &[][..], context(0)),
        (list, &["base:"], context(0)),
        (list, &[other], none.clone()),
        (set, &[], none.clone()),
        (set, &["base:"], none.clone()),
        (
            set,
            &[other, "base:allocation", "base:allocation"],
            context(1),
        ),
        (set, &["base:allocatio"], none),
    ] {
        assert_eq!(
            answers(number, &queries("disk", asked)),
            expected,
            "{asked:?}"
        );
    }
    let unknown = answers(set, &queries("other", &["base:allocation"]));
    assert_eq!(unknown[0].0, reply::ERR_UNKNOWN);
    let mut lies = queries("", &["base:allocation"]);
    lies[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(answers(set, &lies)[0].0, reply::ERR_INVALID);
}

#[test]
fn a_metadata_context_needs_structured_replies_and_the_last_choice_counts() {
    let choose = |queries: &[u8]| option_bytes(option::SET_META_CONTEXT, queries);
    let allocation = queries("", &["base:allocation"]);
    let mut machine = Server::new(export(), 4);
    let mut wire = Wire::default();
    let said = [vec![0, 0, 0, 3], choose(&allocation)].concat();
    feed(&mut machine, &said, &mut wire).expect("no violation");
    assert_eq!(wire.bytes[12..16], reply::ERR_INVALID.to_be_bytes());
    let structured = option_bytes(option::STRUCTURED_REPLY, &[]);
    let wrong = queries("other", &["base:allocation"]);
    let go = option_bytes(option::GO, &go(""));
    let said = [structured, choose(&allocation), choose(&wrong), go].concat();
    feed(&mut machine, &said, &mut wire).expect("no violation");
    let mut wire = Wire::default();
    let status = request(0, command::BLOCK_STATUS, 0, 512);
    assert_eq!(feed(&mut machine, &status, &mut wire), Ok(vec![]));
    let error = [&22_u32.to_be_bytes()[..], &[0, 0]].concat();
    assert_eq!(wire.bytes, chunk_bytes(1, chunk::ERROR, 6, &error));
}

#[test]
fn block_status_is_told_in_one_chunk() {
    let mut machine = Server::new(export(), 4);
    let said = [
        vec![0, 0, 0, 3],
        option_bytes(option::STRUCTURED_REPLY, &[]),
        option_bytes(option::SET_META_CONTEXT, &queries("", &["base:allocation"])),
        option_bytes(option::GO, &go("disk")),
        request(command_flag::REQ_ONE, command::BLOCK_STATUS, 512, 2048),
    ];
    let events = feed(&mut machine, &said.concat(), &mut Wire::default()).expect("no violation");
    let [
        Event::Ready,
        Event::Command {
            slot,
            command: Command::BlockStatus { one: true },
            offset: 512,
            bytes: 2048,
        },
    ] = events[..]
    else {
        panic!("{events:?}");
    };
    let mut wire = Wire::default();
    let extents = [(512, 0), (1536, 3)].map(|(bytes, flags)| Extent { bytes, flags });
    machine.tell_extents(slot, &extents, &mut wire);
    let body = [1_u32, 512, 0, 1536, 3].map(u32::to_be_bytes).concat();
    assert_eq!(wire.bytes, chunk_bytes(1, chunk::BLOCK_STATUS, 20, &body));
    let none = request(0, command::BLOCK_STATUS, 512, 0);
    assert_eq!(feed(&mut machine, &none, &mut wire), Ok(vec![]));
    assert_eq!(machine.in_progress(), 0);
}
