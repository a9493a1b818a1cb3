//! The listening socket of an NBD server over TCP, and the check whether it is allowed.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use fabrix_rt::net;

use crate::failure::Failure;
use crate::served::socket_address;

/// Listens on the address of `--listen`, and returns the socket with its URI. Port 0 lets the
/// system choose. Addresses other than loopback need `anybody`, the explicit permission of the
/// user.
pub(super) fn listen(text: &str, anybody: bool) -> Result<(OwnedFd, PathBuf), Failure> {
    let wrong = |why: &str| {
        Failure::usage(format!(
            "--listen {text}: {why}; write nbd://ADDR[:PORT], like nbd://127.0.0.1"
        ))
    };
    let place = text.strip_prefix("nbd://");
    let place = place.ok_or_else(|| wrong("not an nbd address"))?;
    let address = socket_address(place, PORT).map_err(|why| wrong(&why))?;
    if !address.ip().is_loopback() && !anybody {
        return Err(Failure::usage(format!(
            "listening on {address} opens the disk to a network, and NBD has no authentication here: say --allow any, \
             or serve the disk over NVMe/TCP or iSCSI"
        )));
    }
    let refused = |error| Failure::io(format!("{error}; choose another with --listen"));
    let listener = net::listen(address).map_err(refused)?;
    let address = listener.local_addr().map_err(Failure::io)?;
    let listener = listener.as_fd().try_clone_to_owned().map_err(Failure::io)?;
    Ok((listener, PathBuf::from(format!("nbd://{address}"))))
}

/// Port of NBD. Source: "The NBD protocol", "Introduction"; IANA's service `nbd`.
const PORT: u16 = 10809;

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str, parts: &[&str]) {
        let failure = listen(text, false).expect_err(text).to_string();
        for part in parts {
            assert!(failure.contains(part), "{failure}");
        }
    }

    #[test]
    fn only_loopback_is_opened_without_a_word() {
        let (_listener, uri) = listen("nbd://127.0.0.1:0", false).expect("loopback");
        assert!(
            uri.to_str()
                .is_some_and(|uri| uri.starts_with("nbd://127.0.0.1:"))
        );
        assert!(listen("nbd://[::]:0", true).is_ok() || listen("nbd://0.0.0.0:0", true).is_ok());
        refused("nbd://0.0.0.0:0", &["0.0.0.0:0", "--allow any"]);
        refused("nbd://192.0.2.1", &["192.0.2.1:10809", "--allow any"]);
    }

    #[test]
    fn a_port_that_is_taken_is_named() {
        let (_listener, uri) = listen("nbd://127.0.0.1:0", false).expect("loopback");
        let uri = uri.to_str().expect("text").to_owned();
        refused(&uri, &[uri.trim_start_matches("nbd://"), "--listen"]);
    }

    #[test]
    fn what_is_no_address_says_what_would_be_one() {
        for text in [
            "127.0.0.1:10809",
            "iscsi://127.0.0.1",
            "nbd://",
            "nbd://127.0.0.1:port",
        ] {
            refused(text, &[text, "nbd://ADDR[:PORT]"]);
        }
    }
}
