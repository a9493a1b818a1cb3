//! A ublk queue from the server's side: the owner of each tag.
//!
//! A tag stands for one request. The driver owns the tag until it has a request. Then the server
//! owns the tag until it answers the request. When the device is stopped, the driver returns every
//! tag for good. The code neither waits nor sees data, and allocates only at the start.

use alloc::vec::Vec;

use super::spec;

/// One queue.
#[derive(Debug)]
pub struct Queue {
    turns: Vec<Turn>,
    /// True if the driver registers the pages of a request in the ring's buffer table, at the index
    /// of its tag.
    places: bool,
    /// Number of tags that the driver has not returned for good.
    left: u16,
}

/// Owner of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// No owner: the tag has not been started.
    New,
    /// The driver: its command waits for a request.
    Driver,
    /// The server: it has a request to answer.
    Server,
    /// No owner any more: the driver has returned the tag for good.
    Over,
}

/// A command for the character device: its opcode, the used eight bytes of its argument (the other
/// eight would be an address), and the buffer index beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// `FETCH_REQ` or `COMMIT_AND_FETCH_REQ`.
    pub opcode: u32,
    /// Queue and tag, then the result.
    pub words: [u32; 2],
    /// [`spec::buffer_index`], or 0 without one.
    pub buffer_index: u32,
}

/// Meaning of a completed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// A request has arrived. The server reads its descriptor and answers it.
    Request,
    /// The driver has returned the tag for good. The queue ends with the last tag.
    Gone,
    /// The driver has refused the command with this errno. The tag is lost, and nobody answers its
    /// request.
    Refused(i32),
}

impl Queue {
    /// A queue of `depth` tags, none of them started. With `places` ([`spec::F_AUTO_BUF_REG`]) the
    /// driver registers the pages of a request at the index of its tag.
    #[must_use]
    pub fn new(depth: u16, places: bool) -> Self {
        Self {
            places,
            turns: (0..depth).map(|_| Turn::New).collect(),
            left: depth,
        }
    }

    /// Number of tags.
    #[must_use]
    pub fn depth(&self) -> u16 {
        u16::try_from(self.turns.len()).unwrap_or(u16::MAX)
    }

    /// First command of a tag. `None` if the tag was started before or does not exist.
    pub fn begin(&mut self, tag: u16) -> Option<Command> {
        self.pass(tag, Turn::New, Turn::Driver)?;
        Some(self.command(spec::FETCH_REQ, tag, 0))
    }

    /// Handles the completion of a tag's command.
    pub fn came(&mut self, tag: u16, result: i32) -> Came {
        if self.pass(tag, Turn::Driver, Turn::Server).is_none() {
            return Came::Refused(result); // no command of the tag was in progress
        }
        if result == RESULT_OK {
            return Came::Request;
        }
        self.turns[usize::from(tag)] = Turn::Over;
        self.left -= 1;
        if result == RESULT_ABORT {
            Came::Gone
        } else {
            Came::Refused(result)
        }
    }

    /// Answers the request of a tag with the number of bytes moved, or with a negative errno.
    /// `None` if the tag has no request.
    pub fn answer(&mut self, tag: u16, result: i32) -> Option<Command> {
        self.pass(tag, Turn::Server, Turn::Driver)?;
        Some(self.command(spec::COMMIT_AND_FETCH_REQ, tag, result))
    }

    /// True if the tag has a request to answer.
    #[must_use]
    pub fn has_request(&self, tag: u16) -> bool {
        self.turns.get(usize::from(tag)) == Some(&Turn::Server)
    }

    /// True if the driver has returned every tag for good. The server then serves no request any
    /// more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.left == 0
    }

    fn pass(&mut self, tag: u16, from: Turn, to: Turn) -> Option<()> {
        let turn = self.turns.get_mut(usize::from(tag))?;
        if *turn != from {
            return None;
        }
        *turn = to;
        Some(())
    }

    /// The queue is the only one: its number is zero.
    fn command(&self, opcode: u32, tag: u16, result: i32) -> Command {
        let queue = [0u16.to_ne_bytes(), tag.to_ne_bytes()];
        let queue = u32::from_ne_bytes([queue[0][0], queue[0][1], queue[1][0], queue[1][1]]);
        Command {
            opcode,
            words: [queue, result.cast_unsigned()],
            buffer_index: if self.places {
                spec::buffer_index(tag)
            } else {
                0
            },
        }
    }
}

const RESULT_OK: i32 = 0;
/// -ENODEV: the device was stopped.
const RESULT_ABORT: i32 = -19;

#[cfg(test)]
mod tests {
    use super::*;

    /// The driver, as far as a server sees it: commands held, requests handed out, answers
    /// received.
    struct Driver {
        held: Vec<bool>,
        given: Vec<bool>,
        answers: Vec<(u16, i32)>,
    }

    impl Driver {
        fn new(depth: u16) -> Self {
            Self {
                held: alloc::vec![false; usize::from(depth)],
                given: alloc::vec![false; usize::from(depth)],
                answers: Vec::new(),
            }
        }

        /// Takes a command as the kernel does: it refuses a second command for a tag.
        fn take(&mut self, command: Command) -> Result<(), i32> {
            let [index, result] = command.words.map(u32::to_ne_bytes);
            assert_eq!(index[..2], [0, 0], "the only queue");
            let tag = u16::from_ne_bytes([index[2], index[3]]);
            let at = usize::from(tag);
            if self.held[at] {
                return Err(-16);
            }
            match command.opcode {
                spec::FETCH_REQ => {}
                spec::COMMIT_AND_FETCH_REQ if self.given[at] => {
                    self.given[at] = false;
                    self.answers.push((tag, i32::from_ne_bytes(result)));
                }
                _ => return Err(-22),
            }
            self.held[at] = true;
            Ok(())
        }

        /// Hands out a request at this tag.
        fn ask(&mut self, tag: u16) -> i32 {
            let at = usize::from(tag);
            assert!(self.held[at], "no command waits at {tag}");
            (self.held[at], self.given[at]) = (false, true);
            0
        }
    }

    fn begun(depth: u16) -> (Queue, Driver) {
        let (mut queue, mut driver) = (Queue::new(depth, false), Driver::new(depth));
        for tag in 0..depth {
            driver.take(queue.begin(tag).expect("new")).expect("free");
        }
        (queue, driver)
    }

    #[test]
    fn requests_and_answers_take_turns_at_every_tag() {
        let (mut queue, mut driver) = begun(3);
        for round in 0..4 {
            for tag in [2, 0, 1] {
                assert!(!queue.has_request(tag));
                assert_eq!(queue.came(tag, driver.ask(tag)), Came::Request);
                assert!(queue.has_request(tag));
            }
            for tag in 0..3 {
                let answer = queue.answer(tag, 4096 + round).expect("it was asked");
                driver.take(answer).expect("the command was free");
            }
        }
        assert_eq!(driver.answers.len(), 12);
        assert_eq!(driver.answers[11], (2, 4099));
    }

    #[test]
    fn every_command_names_the_place_of_its_tag_where_pages_are_wanted() {
        let mut queue = Queue::new(3, true);
        assert_eq!(
            queue.begin(2).map(|first| first.buffer_index),
            Some(0x1_0002)
        );
        queue.came(2, 0);
        assert_eq!(
            queue.answer(2, 0).map(|next| next.buffer_index),
            Some(0x1_0002)
        );
        let mut queue = Queue::new(3, false);
        assert_eq!(queue.begin(2).map(|first| first.buffer_index), Some(0));
    }

    #[test]
    fn an_error_goes_to_the_driver_as_it_is() {
        let (mut queue, mut driver) = begun(1);
        queue.came(0, driver.ask(0));
        driver
            .take(queue.answer(0, -5).expect("asked"))
            .expect("free");
        assert_eq!(driver.answers, [(0, -5)]);
    }

    #[test]
    fn nothing_is_answered_twice_or_unasked() {
        let (mut queue, mut driver) = begun(2);
        assert_eq!(queue.answer(0, 0), None);
        queue.came(0, driver.ask(0));
        assert!(queue.answer(0, 0).is_some());
        assert_eq!(queue.answer(0, 0), None);
        assert_eq!(queue.answer(7, 0), None);
        assert_eq!(queue.begin(0), None);
    }

    #[test]
    fn the_queue_is_over_when_every_tag_was_given_back() {
        let (mut queue, mut driver) = begun(3);
        queue.came(1, driver.ask(1));
        assert_eq!(queue.came(0, RESULT_ABORT), Came::Gone);
        assert_eq!(queue.came(2, RESULT_ABORT), Came::Gone);
        assert!(!queue.is_over(), "a request is still unanswered");
        driver
            .take(queue.answer(1, 0).expect("asked"))
            .expect("free");
        assert_eq!(queue.came(1, RESULT_ABORT), Came::Gone);
        assert!(queue.is_over());
        assert_eq!(queue.answer(1, 0), None);
    }

    #[test]
    fn a_refused_command_ends_its_tag_and_says_why() {
        let (mut queue, _) = begun(2);
        assert_eq!(queue.came(0, -22), Came::Refused(-22));
        assert_eq!(queue.came(1, 1), Came::Refused(1), "what was not offered");
        assert!(queue.is_over());
    }

    #[test]
    fn an_ending_that_nobody_began_changes_nothing() {
        let mut queue = Queue::new(2, false);
        assert_eq!(queue.came(0, 0), Came::Refused(0));
        assert_eq!(queue.came(9, 0), Came::Refused(0));
        assert!(queue.begin(0).is_some() && !queue.is_over());
    }
}
