//! Sequence numbers of 32 bits that wrap, and the window of commands that a session may send.
//!
//! This file knows CmdSN, ExpCmdSN and MaxCmdSN, and no PDUs.
//!
//! Source: RFC 7143, sections 4.2.2.1 "Command Numbering and Acknowledging" and 3.1 (serial number
//! arithmetic of RFC 1982).

/// Whether `left` comes before `right`, in serial number arithmetic.
#[must_use]
pub const fn precedes(left: u32, right: u32) -> bool {
    left != right && right.wrapping_sub(left) < 1 << 31
}

/// Position of a CmdSN relative to the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowPosition {
    /// The next expected number. The command is accepted.
    Next,
    /// In the window, but earlier numbers are missing.
    Gap,
    /// Outside the window. The command is silently ignored.
    Outside,
}

/// Window of commands that the initiator may send: from ExpCmdSN to MaxCmdSN.
///
/// MaxCmdSN grows when a command ends, and not when it arrives. The window therefore limits the
/// commands in progress too. MaxCmdSN never decreases.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    exp_cmd_sn: u32,
    depth: u32,
    in_progress: u32,
}

impl Window {
    /// A window of `depth` commands, at least one, that begins with `cmd_sn`.
    #[must_use]
    pub const fn new(cmd_sn: u32, depth: u16) -> Self {
        Self {
            exp_cmd_sn: cmd_sn,
            depth: if depth == 0 { 1 } else { depth as u32 },
            in_progress: 0,
        }
    }

    /// ExpCmdSN: next expected number.
    #[must_use]
    pub const fn exp_cmd_sn(&self) -> u32 {
        self.exp_cmd_sn
    }

    /// MaxCmdSN: last accepted number. One less than ExpCmdSN when the window is closed.
    #[must_use]
    pub const fn max_cmd_sn(&self) -> u32 {
        let open = self.depth.saturating_sub(self.in_progress);
        self.exp_cmd_sn.wrapping_add(open).wrapping_sub(1)
    }

    /// Position of `cmd_sn` relative to the window.
    #[must_use]
    pub const fn place(&self, cmd_sn: u32) -> WindowPosition {
        if precedes(cmd_sn, self.exp_cmd_sn) || precedes(self.max_cmd_sn(), cmd_sn) {
            WindowPosition::Outside
        } else if cmd_sn == self.exp_cmd_sn {
            WindowPosition::Next
        } else {
            WindowPosition::Gap
        }
    }

    /// Counts the command with the next number as in progress.
    pub const fn enter(&mut self) {
        self.exp_cmd_sn = self.exp_cmd_sn.wrapping_add(1);
        self.in_progress += 1;
    }

    /// Counts the end of a command in progress.
    pub const fn leave(&mut self) {
        debug_assert!(self.in_progress > 0);
        self.in_progress = self.in_progress.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_goes_round_the_end() {
        assert!(precedes(u32::MAX, 0) && precedes(0, 1) && !precedes(1, 0) && !precedes(5, 5));
        assert!(precedes(u32::MAX - 3, 7) && !precedes(7, u32::MAX - 3));
    }

    #[test]
    fn a_full_window_is_closed_and_opens_when_a_command_ends() {
        let mut window = Window::new(u32::MAX, 2);
        assert_eq!(window.max_cmd_sn(), 0);
        window.enter();
        window.enter();
        assert_eq!((window.exp_cmd_sn(), window.max_cmd_sn()), (1, 0));
        assert_eq!(window.place(1), WindowPosition::Outside);
        window.leave();
        assert_eq!(
            (window.place(1), window.max_cmd_sn()),
            (WindowPosition::Next, 1)
        );
    }

    #[test]
    fn what_is_old_or_too_new_is_outside_and_what_skips_is_a_gap() {
        let window = Window::new(10, 4);
        let places = [9, 10, 11, 13, 14].map(|cmd_sn| window.place(cmd_sn));
        use WindowPosition::{Gap, Next, Outside};
        assert_eq!(places, [Outside, Next, Gap, Gap, Outside]);
    }

    #[test]
    fn max_cmd_sn_never_goes_back() {
        let mut window = Window::new(0, 3);
        let mut last = window.max_cmd_sn();
        for step in [true, true, false, true, true, false, false, false] {
            if step {
                window.enter()
            } else {
                window.leave()
            }
            assert!(!precedes(window.max_cmd_sn(), last));
            last = window.max_cmd_sn();
        }
    }
}
