//! Objects that tasks of a shard share and that need one instance on it, like the access to a
//! device.

use std::any::Any;
use std::rc::Rc;

use super::Shard;

/// The shared objects, at most one of each type.
#[derive(Default)]
pub(super) struct Commons(Vec<Rc<dyn Any>>);

impl Commons {
    fn get<T: 'static>(&self) -> Option<Rc<T>> {
        let mut found = self.0.iter().map(Rc::clone).map(Rc::downcast);
        found.find_map(Result::ok)
    }
}

impl Shard {
    /// The object of this type that the tasks of the shard share. The first caller makes it. It
    /// lives as long as the shard.
    ///
    /// # Errors
    /// What `make` says. The next caller tries again.
    pub fn common<T: 'static, E>(
        &mut self,
        make: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<Rc<T>, E> {
        if let Some(found) = self.commons.get() {
            return Ok(found);
        }
        let made = Rc::new(make(self)?);
        self.commons.0.push(Rc::clone(&made) as Rc<dyn Any>);
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ShardConfig;

    #[test]
    fn there_is_one_object_of_a_type_and_a_failed_attempt_is_repeated() {
        let config = ShardConfig {
            arena_bytes: 16 << 20,
            ..ShardConfig::default()
        };
        let mut shard = Shard::new(config).expect("a shard");
        let refused = shard.common::<u32, _>(|_| Err("no"));
        assert_eq!(refused.expect_err("refused"), "no");
        let first = shard.common::<u32, ()>(|_| Ok(7)).expect("made");
        let second = shard.common::<u32, ()>(|_| Ok(8)).expect("found");
        assert!(Rc::ptr_eq(&first, &second) && *second == 7);
        let other = shard.common::<u64, ()>(|_| Ok(9)).expect("made");
        assert_eq!(*other, 9, "another type is another object");
    }
}
