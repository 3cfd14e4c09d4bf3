//! Nodes and claims that take pods, each under a number that it keeps, and the order in which they are asked.
//!
//! Sets of nodes are sets of small numbers, so the number of one must not change when another comes or goes. Numbers follow
//! the order at first; what comes later stands behind, out of order, and who asks in order merges the two.

use std::cell::OnceCell;

use super::Place;
use super::marks::Marks;
use super::room::Room;
use crate::model::hash::FastMap;

#[derive(Default)]
pub(super) struct Places {
    /// By number, those included that are no more.
    rooms: Vec<Room>,
    numbers: FastMap<Place, usize>,
    /// The numbers of those that there are.
    present: Marks,
    /// The first so many numbers are in order.
    in_order: usize,
    /// The others, in order.
    late: Vec<usize>,
    /// By number.
    changes: Vec<Changes>,
}

/// How often something changed at one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Anything, and be it a word in the status of a pod there.
    pub all: u32,
    /// What it refuses for what it is.
    pub of_itself: u32,
}

/// What became of numbers when something changed at a place.
#[derive(Default)]
pub(super) struct Moved {
    pub left: Option<usize>,
    /// New, or with other labels.
    pub come: Option<usize>,
    /// What it refuses for what it is may be another.
    pub differs: Option<usize>,
}

impl Places {
    /// `rooms`: in order.
    pub fn new(rooms: Vec<Room>) -> Self {
        Self {
            numbers: rooms.iter().enumerate().map(|(at, room)| (room.place, at)).collect(),
            present: Marks::all(rooms.len()),
            in_order: rooms.len(),
            late: Vec::new(),
            changes: vec![Changes::default(); rooms.len()],
            rooms,
        }
    }

    pub fn changes(&self) -> &[Changes] {
        &self.changes
    }

    pub fn rooms(&self) -> &[Room] {
        &self.rooms
    }

    pub fn room(&self, number: usize) -> &Room {
        &self.rooms[number]
    }

    pub fn number(&self, place: Place) -> Option<usize> {
        self.numbers.get(&place).copied()
    }

    pub fn present(&self) -> &Marks {
        &self.present
    }

    /// At `place` there is this now, or nothing.
    pub fn put(&mut self, place: Place, room: Option<Room>) -> Moved {
        let mut moved = Moved::default();
        let known = self.number(place);
        if let (Some(at), Some(room)) = (known, &room)
            && self.rooms[at].rank() == room.rank()
        {
            let former = &self.rooms[at];
            let (is_alike, suits_alike) = (former.is_labelled_as(room), former.suits_as(room));
            moved.come = (!is_alike).then_some(at);
            moved.differs = (!suits_alike).then_some(at);
            self.changes[at].all += 1;
            self.changes[at].of_itself += u32::from(!suits_alike);
        } else if let Some(at) = known {
            self.rooms[at].is_vacant = true;
            self.numbers.remove(&place);
            self.present.remove(at);
            self.changes[at].all += 1;
            self.changes[at].of_itself += 1;
            self.late.retain(|late| *late != at);
            moved.left = Some(at);
        }
        let Some(mut room) = room else { return moved };
        match self.number(place) {
            Some(at) => {
                if moved.come.is_none() {
                    room.keep_requirements_of(&mut self.rooms[at]);
                }
                self.rooms[at] = room;
            }
            None => {
                let at = self.rooms.len();
                let before = self.late.partition_point(|late| self.rooms[*late].rank() < room.rank());
                self.late.insert(before, at);
                self.numbers.insert(place, at);
                self.present.insert(at);
                self.rooms.push(room);
                self.changes.push(Changes::default());
                moved.come = Some(at);
            }
        }
        moved
    }

    /// What is attached where has to be found out again.
    pub fn forget_volumes(&mut self) {
        for room in &mut self.rooms {
            room.attached = OnceCell::new();
        }
    }

    /// Whether so many stand out of order, or are no more, that numbering them anew is worth it.
    pub fn are_scattered(&self) -> bool {
        let most = self.in_order / 8 + 64;
        self.late.len() > most || self.rooms.len() - self.numbers.len() > most
    }

    /// Those of `open` in the order in which they are asked.
    pub fn in_order<'a>(&'a self, open: &'a Marks) -> impl Iterator<Item = usize> + 'a {
        let mut early = open.iter().take_while(|at| *at < self.in_order).peekable();
        let mut late = self.late.iter().copied().filter(|at| open.contains(*at)).peekable();
        std::iter::from_fn(move || match (early.peek(), late.peek()) {
            (Some(one), Some(other)) if self.rooms[*other].rank() < self.rooms[*one].rank() => late.next(),
            (Some(_), _) => early.next(),
            (None, _) => late.next(),
        })
    }
}
