//! Two revisions compared before they cost money: both are played on the same demand, and what differs is the report.
//!
//! What is compared is never the branch as it is, but what the base would become: [`merge`] puts the proposal onto it.
//! [`impact`] then asks the same engine twice, [`lives`] how much of the answer is chance, [`policy`] what the
//! guardrails of the base have against it, [`gate`] says whether the answer is good enough, and [`markdown`] writes it
//! down for a forge, where every word of the repository is a stranger's. Programs that collect findings get them in their
//! own [`forms`], all made from the one list of [`finding`].

pub mod merge;
pub mod report;
pub mod lives;
pub mod impact;
pub mod policy;
pub mod gate;
pub mod headline;
pub mod escape;
pub mod markdown;
pub mod finding;
pub mod forms;
pub mod saved;
