//! Lines as events again. Whoever wrote them is not trusted: what does not fit is refused with the reason.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::scribe::PodRecord;
use super::{Committed, Decided, FORMAT, Header, Joins, moments};
use crate::model::catalog::{Catalog, CatalogChange, Misfit};
use crate::model::name::{NodeName, ObjectKey};
use crate::model::observation::Observation;
use crate::model::pod::{Pod, PodPhase, PodShape};

/// What a line says. `D`: how a decision is taken in.
#[derive(Clone, Debug)]
pub enum Line<D> {
    Header(Box<Header>),
    Seen {
        at: Timestamp,
        what: Observation,
    },
    Decided {
        at: Timestamp,
        decision: D,
    },
    Committed {
        at: Timestamp,
        commit: Committed,
    },
    /// A picture of the objects begins or is over.
    Picture {
        at: Timestamp,
        is_over: bool,
    },
}

/// Why a line cannot be understood.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error(
        "it was written by Provisor {provisor} in form {format}; this program reads form {FORMAT} and older ones"
    )]
    Newer { format: u64, provisor: String },
    #[error("it does not begin with a header, so it is no recording")]
    NoHeader,
    #[error("it is no line of a recording")]
    Malformed(#[from] serde_json::Error),
    #[error("the catalogue does not fit")]
    Catalog(#[from] Misfit),
    #[error("pod shape {0} is not the next, or was never written")]
    Shape(u32),
    #[error("{0} is a moment that no cluster has seen")]
    Moment(Timestamp),
    #[error("a duration is longer than three hundred years, or negative")]
    Duration,
}

/// Understands the lines of one segment after the other.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    has_begun: bool,
    shapes: Vec<Arc<PodShape>>,
    catalog: Option<Arc<Catalog>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum Wire<D> {
    Header(Value),
    Shape {
        id: u32,
        shape: Arc<PodShape>,
    },
    Seen {
        at: Timestamp,
        what: Observation,
    },
    Pod {
        at: Timestamp,
        pod: PodRecord,
    },
    Catalog {
        at: Timestamp,
        change: CatalogChange,
    },
    Decided {
        at: Timestamp,
        decision: D,
    },
    Committed {
        at: Timestamp,
        commit: Committed,
    },
    #[serde(rename_all = "camelCase")]
    Picture {
        at: Timestamp,
        is_over: bool,
    },
}

impl Reader {
    /// Takes in a line; `None` if it only prepares later ones.
    pub fn read<'l, D: Deserialize<'l>>(&mut self, line: &'l str) -> Result<Option<Line<D>>, Unreadable> {
        let wire = match serde_json::from_str::<Wire<D>>(line) {
            Ok(wire) => wire,
            Err(_) if !self.has_begun => return Err(Unreadable::NoHeader),
            Err(error) => return Err(error.into()),
        };
        if let Wire::Header(header) = wire {
            return self.begin(header).map(Some);
        }
        if !self.has_begun {
            return Err(Unreadable::NoHeader);
        }
        let (at, line) = match wire {
            Wire::Header(_) => return Ok(None),
            Wire::Shape { id, shape } => {
                if usize::try_from(id).ok() != Some(self.shapes.len()) {
                    return Err(Unreadable::Shape(id));
                }
                self.shapes.push(shape);
                return Ok(None);
            }
            Wire::Seen { at, what } => (at, Line::Seen { at, what }),
            Wire::Pod { at, pod } => (at, Line::Seen { at, what: Observation::Pod(self.pod(pod)?) }),
            Wire::Catalog { at, change } => {
                let catalog = Arc::new(change.apply_to(self.catalog.as_deref())?);
                self.catalog = Some(catalog.clone());
                (at, Line::Seen { at, what: Observation::Catalog(catalog) })
            }
            Wire::Decided { at, decision } => (at, Line::Decided { at, decision }),
            Wire::Committed { at, commit } => (at, Line::Committed { at, commit }),
            Wire::Picture { at, is_over } => (at, Line::Picture { at, is_over }),
        };
        moments::check(at)?;
        if let Line::Seen { what, .. } = &line {
            moments::check_observation(what)?;
        }
        Ok(Some(line))
    }

    fn begin<D>(&mut self, header: Value) -> Result<Line<D>, Unreadable> {
        let header = header_of(header)?;
        *self = Self { has_begun: true, ..Self::default() };
        Ok(Line::Header(Box::new(header)))
    }

    fn pod(&self, record: PodRecord) -> Result<Arc<Pod>, Unreadable> {
        let shape = usize::try_from(record.shape).ok().and_then(|at| self.shapes.get(at));
        let shape = shape.ok_or(Unreadable::Shape(record.shape))?.clone();
        Ok(Arc::new(Pod {
            key: record.key,
            uid: record.uid,
            shape,
            owners: record.owners,
            created: record.created,
            deleted: record.deleted,
            started: record.started,
            node: record.node,
            nominated_node: record.nominated_node,
            phase: record.phase,
            is_ready: record.is_ready,
            is_unschedulable: record.is_unschedulable,
            is_gated: record.is_gated,
        }))
    }
}

/// What a line says to somebody who only looks for names, and knows nothing of the lines before it.
#[derive(Clone, Debug)]
pub enum Glance {
    Header { environment: String, is_simulated: bool, joins: Joins },
    Seen { at: Timestamp, what: Value },
    Pod { at: Timestamp, pod: PodGlance },
    Decided { at: Timestamp, decision: Decided },
    Committed { at: Timestamp, commit: Committed },
    Picture { is_over: bool },
}

/// How far a pod is.
#[derive(Clone, Debug, Deserialize)]
pub struct PodGlance {
    pub key: ObjectKey,
    pub node: Option<NodeName>,
    pub created: Option<Timestamp>,
    pub deleted: Option<Timestamp>,
    pub phase: PodPhase,
    #[serde(default)]
    pub is_unschedulable: bool,
    #[serde(default)]
    pub is_gated: bool,
}

/// Reads one line alone; `None` for a line without names: of a shape or a catalogue.
pub fn glance(line: &str) -> Result<Option<Glance>, Unreadable> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    enum Wire {
        Header(Value),
        Seen {
            at: Timestamp,
            what: Value,
        },
        Pod {
            at: Timestamp,
            pod: PodGlance,
        },
        Decided {
            at: Timestamp,
            decision: Decided,
        },
        Committed {
            at: Timestamp,
            commit: Committed,
        },
        #[serde(rename_all = "camelCase")]
        Picture {
            is_over: bool,
        },
    }
    if ["{\"shape\":", "{\"catalog\":"].iter().any(|start| line.starts_with(start)) {
        return Ok(None);
    }
    Ok(Some(match serde_json::from_str(line)? {
        Wire::Header(header) => {
            let header = header_of(header)?;
            let Header { environment, is_simulated, joins, .. } = header;
            Glance::Header { environment, is_simulated, joins }
        }
        Wire::Seen { at, what } => Glance::Seen { at, what },
        Wire::Pod { at, pod } => Glance::Pod { at, pod },
        Wire::Decided { at, decision } => Glance::Decided { at, decision },
        Wire::Committed { at, commit } => Glance::Committed { at, commit },
        Wire::Picture { is_over } => Glance::Picture { is_over },
    }))
}

fn header_of(header: Value) -> Result<Header, Unreadable> {
    let format = header.get("format").and_then(Value::as_u64).ok_or(Unreadable::NoHeader)?;
    if format > u64::from(FORMAT) {
        let provisor = header.get("provisor").and_then(Value::as_str).unwrap_or("of unknown version");
        return Err(Unreadable::Newer { format, provisor: provisor.chars().take(64).collect() });
    }
    let header: Header = serde_json::from_value(header)?;
    moments::check_settings(&header.settings)?;
    Ok(header)
}
