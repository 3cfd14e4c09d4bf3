//! Since when a node stays for the reason for which it stays now: what the objects tell counts first, then what earlier passes found.
//!
//! A successor begins without this, and says of what it finds in its first pass that it may have been so before.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::capacity::disruption::Kept;
use crate::capacity::disruption::stays::Since;
use crate::model::name::NodeName;

#[derive(Clone, Debug, Default)]
pub(super) struct Lasting {
    /// What kept each node in the last whole pass. `None`: there was none.
    known: Option<BTreeMap<NodeName, (&'static str, Since)>>,
}

impl Lasting {
    /// Says of each of `kept`, which a pass at `now` found, since when it is so. `is_whole`: every method was asked.
    pub fn date(&mut self, kept: &mut [Kept], now: Timestamp, is_whole: bool) {
        let or_earlier = self.known.is_none();
        for one in kept.iter_mut().filter(|one| one.since.is_none()) {
            let known = self.known.as_ref().and_then(|known| known.get(&one.node));
            one.since = match known {
                Some((code, since)) if *code == one.code => Some(*since),
                _ if is_whole => Some(Since { at: now, or_earlier }),
                // What keeps it may be something else.
                _ => None,
            };
        }
        if is_whole {
            let dated = kept.iter().filter_map(|one| Some((one.node, (one.code, one.since?))));
            self.known = Some(dated.collect());
        }
    }
}
