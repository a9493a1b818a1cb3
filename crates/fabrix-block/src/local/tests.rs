//! Opening disks from their text.

use super::*;
use crate::testing::FrontEnd;
use crate::{Deallocate, Durability, Status};

fn open(text: &str) -> Result<Arc<dyn Device>, OpenError> {
    open_local(&Spec::parse(text).expect(text))
}

fn refusal(text: &str) -> (OpenErrorKind, String) {
    match open(text) {
        Ok(_) => panic!("{text} should be refused"),
        Err(error) => (error.kind, error.sentence),
    }
}

#[test]
fn opens_every_disk_of_this_machine_by_its_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = format!("{}/disk,size=1M,direct=off", folder.path().display());
    for text in [
        "ram:1M",
        "null:1M,block=4096",
        &file,
        "raid0:chunk=4k,(ram:512k,ram:512k)",
    ] {
        let disk = open(text).expect(text);
        assert_eq!(disk.geometry().bytes(), 1 << 20, "{text}");
        assert!(!disk.geometry().read_only);
        assert_eq!(disk.geometry().deallocate, Deallocate::Zeroes);
        let durable = disk.geometry().durability == Durability::Device;
        assert_eq!(durable, text == file, "{text}");
        let mut front = FrontEnd::new();
        let mut channel = front.open(&disk);
        let block = disk.geometry().block_bytes as usize;
        let read = front.ask(
            &mut channel,
            crate::Operation::Read,
            0,
            1,
            crate::Payload::Lend,
        );
        assert_eq!(crate::testing::bytes_of(&read.1, block), vec![0; block]);
    }
}

#[test]
fn the_physical_block_is_what_the_user_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = format!("{}/disk,size=1M,direct=off", folder.path().display());
    for text in ["ram:1M", "null:1M", &file] {
        let physical = |option: &str| {
            let disk = open(&format!("{text}{option}")).expect(text);
            disk.geometry().physical_block_bytes
        };
        assert_eq!(physical(""), 4096, "{text}");
        assert_eq!(physical(",physical=512"), 512, "{text}");
        assert_eq!(physical(",block=4096,physical=4096"), 4096, "{text}");
    }
    // A disk with blocks of 4096 bytes whose physical block is smaller. Here the user asked for it,
    // and a device might report it.
    let geometry = crate::Geometry::new(4096, 1).with_physical(Some(512));
    assert!(geometry.expect_err("too small").contains("block of 4096"));
}

#[test]
fn common_options_are_kept() {
    let disk = open("ram:1M,ro,inject=error:1:read").expect("a disk");
    assert!(disk.geometry().read_only);
    let mut front = FrontEnd::new();
    let mut channel = front.open(&disk);
    assert_eq!(front.write(&mut channel, 0, &[0; 512]), Status::ReadOnly);
    assert_eq!(front.read(&mut channel, 0, 1), Err(Status::MediaRead));
    assert_eq!(front.read(&mut channel, 0, 1), Ok(vec![0; 512]));
}

#[test]
fn the_identity_follows_the_name_or_the_seed_and_nothing_else() {
    let identity = |text: &str| open(text).expect(text).identity().clone();
    assert_eq!(
        identity("ram:1M,name=a").uuid,
        identity("null:2M,name=a").uuid
    );
    assert_ne!(
        identity("ram:1M,name=a").uuid,
        identity("ram:1M,name=b").uuid
    );
    assert_eq!(identity("ram:1M"), identity("ram:1M"));
    let spec = Spec::parse("ram:1M,name=a").expect("a spec");
    let here = open_local_as(&spec, "machine 1/a").expect("a disk");
    let there = open_local_as(&spec, "machine 2/a").expect("a disk");
    assert_eq!(here.identity().name, "a");
    assert_ne!(here.identity().nguid, there.identity().nguid);
    assert_ne!(here.identity().serial, there.identity().serial);
}

#[test]
fn refuses_with_the_kind_that_the_exit_code_needs() {
    assert_eq!(refusal("nvme+tcp://box/nqn/1").0, OpenErrorKind::Usage);
    assert_eq!(refusal("/no/such/file").0, OpenErrorKind::NotFound);
    assert_eq!(
        refusal("raid0:(ram:1M,/no/such/file)").0,
        OpenErrorKind::NotFound
    );
    let (kind, sentence) = refusal("ram:100");
    assert_eq!(kind, OpenErrorKind::Usage);
    assert!(sentence.contains("less than one block"), "{sentence}");
}

#[test]
fn the_same_file_cannot_be_two_members() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = format!("{}/disk,size=1M,direct=off", folder.path().display());
    assert_eq!(
        refusal(&format!("raid0:({file},{file})")).0,
        OpenErrorKind::InUse
    );
}
