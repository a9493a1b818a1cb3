//! The table of a shard's tasks. Its places have generations, so that a completion for a removed
//! task finds no other task.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::Task;
use crate::TaskId;
use crate::token::{GENERATION_MAX, INDEX_MAX};

pub(crate) struct Tasks {
    places: Vec<TaskEntry>,
    free: VecDeque<u32>,
}

struct TaskEntry {
    generation: u16,
    used: bool,
    wants_flush: bool,
    task: Option<Rc<RefCell<dyn Task>>>,
}

impl Tasks {
    pub(crate) fn new() -> Self {
        Self {
            places: Vec::new(),
            free: VecDeque::new(),
        }
    }

    /// Reserves a place. A freed place is used again after many others were freed, so that ids come
    /// back late.
    pub(crate) fn reserve(&mut self) -> TaskId {
        let next = u32::try_from(self.places.len()).expect("the table ends at INDEX_MAX");
        let index = if self.free.len() > RESTING || next == INDEX_MAX {
            self.free
                .pop_front()
                .expect("a shard has at most a million tasks at once")
        } else {
            self.places.push(TaskEntry {
                generation: 0,
                used: false,
                wants_flush: false,
                task: None,
            });
            next
        };
        let place = &mut self.places[index as usize];
        place.used = true;
        TaskId::new(index, place.generation)
    }

    /// Puts a task into a reserved place. Panics if the id is not reserved, or was removed.
    pub(crate) fn install(&mut self, id: TaskId, task: Rc<RefCell<dyn Task>>) {
        let place = self
            .place(id)
            .expect("install() belongs to a reserve() that was not removed");
        place.task = Some(task);
    }

    pub(crate) fn remove(&mut self, id: TaskId) -> Option<Rc<RefCell<dyn Task>>> {
        let place = self.place(id)?;
        place.used = false;
        place.wants_flush = false;
        place.generation = if place.generation == GENERATION_MAX {
            0
        } else {
            place.generation + 1
        };
        let task = place.task.take();
        self.free
            .push_back(u32::try_from(id.index()).expect("it came from a u32"));
        task
    }

    pub(crate) fn get(&self, id: TaskId) -> Option<&Rc<RefCell<dyn Task>>> {
        let place = self.places.get(id.index())?;
        place
            .task
            .as_ref()
            .filter(|_| u32::from(place.generation) == id.generation())
    }

    /// All tasks.
    pub(crate) fn all(&self) -> Vec<Rc<RefCell<dyn Task>>> {
        let installed = self.places.iter().filter_map(|place| place.task.clone());
        installed.collect()
    }

    /// Notes that a task wants a flush. True for the first call since its last flush.
    pub(crate) fn ask_flush(&mut self, id: TaskId) -> bool {
        self.place(id)
            .is_some_and(|place| !std::mem::replace(&mut place.wants_flush, true))
    }

    /// Clears the note, before the task's flush is called.
    pub(crate) fn begin_flush(&mut self, id: TaskId) {
        if let Some(place) = self.place(id) {
            place.wants_flush = false;
        }
    }

    fn place(&mut self, id: TaskId) -> Option<&mut TaskEntry> {
        let place = self.places.get_mut(id.index())?;
        let meant = place.used && u32::from(place.generation) == id.generation();
        meant.then_some(place)
    }
}

/// Freed places that wait before one is used again.
const RESTING: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Completion, Shard};

    struct Idle;
    impl Task for Idle {
        fn completed(&mut self, _: &mut Shard, _: u32, _: Completion) {}
    }

    #[test]
    fn a_removed_task_is_not_found_again_by_its_id() {
        let mut tasks = Tasks::new();
        let first = tasks.reserve();
        assert!(tasks.get(first).is_none());
        tasks.install(first, Rc::new(RefCell::new(Idle)));
        assert!(tasks.get(first).is_some());
        assert!(tasks.remove(first).is_some());
        assert!(tasks.remove(first).is_none());
        for _ in 0..10_000 {
            let next = tasks.reserve();
            assert_ne!(next, first);
            tasks.install(next, Rc::new(RefCell::new(Idle)));
            assert!(tasks.get(first).is_none());
            tasks.remove(next);
        }
        assert!(tasks.places.len() < 2000, "places are used again");
    }

    #[test]
    fn a_flush_is_asked_for_once_until_it_begins() {
        let mut tasks = Tasks::new();
        let id = tasks.reserve();
        assert!(tasks.ask_flush(id));
        assert!(!tasks.ask_flush(id));
        tasks.begin_flush(id);
        assert!(tasks.ask_flush(id));
        tasks.remove(id);
        assert!(!tasks.ask_flush(id));
        assert!(!tasks.ask_flush(TaskId::NOBODY));
    }
}
