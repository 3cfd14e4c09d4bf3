//! Repositories on a server: asked over a wire, kept as a store of objects in the cache.
//!
//! Asking where references lead downloads nothing. Fetching asks for one commit without its history, and takes it into
//! the store as a whole pack or not at all, so a broken fetch leaves what was there. A damaged store is thrown away and
//! filled again once.

mod wire;
mod http;
mod ssh;
mod store;

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gix::ObjectId;
use gix::bstr::ByteSlice;
use gix::progress::Discard;
use gix::protocol::fetch::negotiate::{Action, Round, one_round};
use gix::protocol::fetch::{Arguments, Negotiate, Shallow, Tags};
use gix::protocol::handshake::Ref;
use gix::protocol::ls_refs::RefPrefixes;
use gix::protocol::transport::client::Capabilities;
use gix::protocol::transport::client::blocking_io::{Transport, http::connect_http};
use gix::protocol::transport::{Protocol, Service};
use gix::protocol::{Handshake, LsRefsCommand};

use super::access::{Access, Credentials};
use super::ancestry::{Abbreviation, Path};
use super::error::{GitError, Phase};
use super::history;
use super::reference::{Advertised, AdvertisedHead, Picked, Reference, Resolved, Tip, pick};
use super::submodule::{self, Submodule};
use super::tree::{self, Objects, Rules, commit_id, object_id};
use super::url::{Place, RepositoryUrl};
use super::{Limits, Progress, Source, Step, Subdirectory};
use crate::model::history::{History, Rewrite};
use crate::model::repository::{CommitId, Repository};
use http::HttpLine;
use ssh::{Complaints, Destination};
use store::Store;
use wire::{Wire, converse};

/// How far history is fetched when ancestry is asked for; the last step is all of it.
const DEPTHS: [u32; 3] = [50, 500, i32::MAX as u32];

#[derive(Debug)]
pub(super) struct RemoteRepository {
    source_name: String,
    url: RepositoryUrl,
    access: Access,
    source: Source,
    ssh_program: PathBuf,
    limits: Limits,
    store: Store,
}

impl RemoteRepository {
    pub(super) fn new(
        url: &RepositoryUrl,
        source_name: &str,
        source: &Source,
        cache: &std::path::Path,
    ) -> Self {
        Self {
            source_name: source_name.into(),
            url: url.clone(),
            access: source.access.clone(),
            source: source.clone(),
            ssh_program: source.ssh_program.clone(),
            limits: source.limits,
            store: Store::new(cache, &url.normalized(), source.limits.store_bytes),
        }
    }

    pub(super) fn resolve(&self, reference: &Reference) -> Result<Resolved, GitError> {
        if let Reference::Before { start, path } = reference {
            return self.resolve_before(start, path).map(Resolved::unnamed);
        }
        let advertised = self.list(reference.prefixes())?;
        let everything = || self.list(vec!["HEAD".into(), "refs/heads/".into(), "refs/tags/".into()]);
        let picked = match pick(reference, &self.source_name, &advertised, everything) {
            Err(error @ GitError::RefNotFound { .. }) => {
                let Some(digits) = reference.abbreviation() else { return Err(error) };
                return self
                    .resolve_abbreviated(&digits, &everything()?)?
                    .map(Resolved::unnamed)
                    .ok_or(error);
            }
            picked => picked?,
        };
        let Picked { reference: name, id, peeled, version } = picked;
        if let Reference::Commit { branch: Some(branch), .. } = reference {
            // Whether the commit is part of it shows when it is fetched; that it exists shows now.
            pick(&Reference::Branch(branch.clone()), &self.source_name, &advertised, everything)?;
        }
        let tag = peeled.is_some().then(|| commit_id(id));
        Ok(Resolved { commit: commit_id(peeled.unwrap_or(id)), reference: name, tag, version })
    }

    /// A commit before another one. As much history is fetched as it takes, unless it is here.
    fn resolve_before(&self, start: &Reference, path: &Path) -> Result<CommitId, GitError> {
        let start = self.resolve(start)?.commit;
        let walk = || {
            let repo = self.store.open()?;
            path.walk(&Objects { repo: &repo, source_name: &self.source_name }, &start)
        };
        let start_id = object_id(&start, &self.source_name)?;
        let known = if self.store.has(start_id)? { walk()? } else { None };
        let found = match known {
            Some(found) => found,
            None => {
                // One more than the way is long shows whether history goes on where it ends.
                self.receive(start_id, path.depth() + 1, &|_| (), &AtomicBool::new(false))?;
                walk()?.ok_or_else(|| path.ends_early(&self.source_name))?
            }
        };
        // It came with the other: a server need not hand it out by its id.
        self.store.lock()?.record(object_id(&found, &self.source_name)?)?;
        Ok(found)
    }

    /// The commit that begins with some digits, among those of the branch that HEAD names and those that have a name.
    fn resolve_abbreviated(
        &self,
        digits: &Abbreviation,
        advertised: &Advertised,
    ) -> Result<Option<CommitId>, GitError> {
        let named: Vec<ObjectId> = advertised.tips.iter().map(|tip| tip.peeled.unwrap_or(tip.id)).collect();
        let mut candidates: Vec<ObjectId> = named.clone();
        if let Some(head) = advertised.head.as_ref().and_then(|head| head.id) {
            let ancestors = || {
                let repo = self.store.open()?;
                history::ancestors(&Objects { repo: &repo, source_name: &self.source_name }, head)
            };
            let known = if self.store.has(head)? { ancestors()? } else { None };
            candidates.extend(match known {
                Some(known) => known,
                None => {
                    self.receive(head, DEPTHS[2], &|_| (), &AtomicBool::new(false))?;
                    ancestors()?.unwrap_or_default()
                }
            });
        }
        let found = digits.find_among(&self.source_name, candidates)?;
        if let Some(found) = &found {
            let id = object_id(found, &self.source_name)?;
            if !named.contains(&id) {
                // It came with the others: a server need not hand it out by its id.
                self.store.lock()?.record(id)?;
            }
        }
        Ok(found)
    }

    pub(super) fn fetch(
        &self,
        reference: &Reference,
        resolved: &Resolved,
        root: &Subdirectory,
        rules: Rules<'_>,
        progress: &Progress<'_>,
        should_stop: &AtomicBool,
    ) -> Result<(Repository, Vec<Submodule>), GitError> {
        match self.fetch_once(reference, resolved, root, rules, progress, should_stop) {
            // Our own store is damaged: it is a cache, so it may go.
            Err(GitError::Corrupt { .. }) => {
                self.store.discard()?;
                self.fetch_once(reference, resolved, root, rules, progress, should_stop)
            }
            outcome => outcome,
        }
    }

    fn fetch_once(
        &self,
        reference: &Reference,
        resolved: &Resolved,
        root: &Subdirectory,
        rules: Rules<'_>,
        progress: &Progress<'_>,
        should_stop: &AtomicBool,
    ) -> Result<(Repository, Vec<Submodule>), GitError> {
        let wanted = object_id(&resolved.commit, &self.source_name)?;
        if let Reference::Commit { id, branch: Some(branch) } = reference {
            self.fetch_from_branch(id, branch.as_str(), branch.short(), progress, should_stop)?;
        } else if !self.store.has(wanted)? {
            self.receive(wanted, 1, progress, should_stop)?;
        }
        progress(Step::Reading);
        let repo = self.store.open()?;
        let objects = Objects { repo: &repo, source_name: &self.source_name };
        if let Some(kind) = objects.try_kind(wanted)?.filter(|kind| *kind != gix::objs::Kind::Commit) {
            let reference = resolved.reference.as_deref().unwrap_or(resolved.commit.as_str()).to_owned();
            let source_name = self.source_name.clone();
            return Err(GitError::NotACommit { source_name, reference, kind: kind.to_string() });
        }
        let (repository, gitlinks) = tree::read_files(&objects, resolved, root, rules, should_stop)?;
        let submodules = submodule::find(&objects, resolved, gitlinks, &self.source)?;
        Ok((repository, submodules))
    }

    /// Fetches ever more of a branch until a commit of it is found.
    fn fetch_from_branch(
        &self,
        commit: &CommitId,
        branch: &str,
        short: &str,
        progress: &Progress<'_>,
        should_stop: &AtomicBool,
    ) -> Result<(), GitError> {
        let advertised = self.list(vec![branch.into()])?;
        let tip = advertised.tips.iter().find(|tip| tip.name == branch).map(|tip| tip.id);
        let Some(tip) = tip else {
            let (source_name, wanted) = (self.source_name.clone(), format!("branch `{short}`"));
            return Err(GitError::RefNotFound { source_name, wanted, near: Vec::new() });
        };
        for depth in [1].into_iter().chain(DEPTHS) {
            if depth > 1 || !self.store.has(tip)? {
                self.receive(tip, depth, progress, should_stop)?;
            }
            let repo = self.store.open()?;
            let objects = Objects { repo: &repo, source_name: &self.source_name };
            match history::is_ancestor(&objects, commit, &commit_id(tip))? {
                Some(true) => return Ok(()),
                Some(false) => break,
                None => {}
            }
        }
        Err(GitError::CommitNotOnBranch {
            source_name: self.source_name.clone(),
            commit: commit.clone(),
            branch: short.into(),
        })
    }

    pub(super) fn history(
        &self,
        old: &CommitId,
        new: &CommitId,
        should_stop: &AtomicBool,
    ) -> Result<History, GitError> {
        let relation = || {
            let repo = self.store.open()?;
            history::relation(&Objects { repo: &repo, source_name: &self.source_name }, old, new)
        };
        let is_known =
            |history: &History| !matches!(history, History::Rewritten { how: Rewrite::Unknown, .. });
        let (old_id, new_id) = (object_id(old, &self.source_name)?, object_id(new, &self.source_name)?);
        if !self.store.has(new_id)? {
            self.receive(new_id, 1, &|_| (), should_stop)?;
        }
        let mut found = relation()?;
        for depth in DEPTHS {
            if is_known(&found) {
                return Ok(found);
            }
            match self.receive(new_id, depth, &|_| (), should_stop) {
                // Too much history to answer is an answer: unknown.
                Err(GitError::RepositoryTooLarge { .. }) => return Ok(found),
                outcome => outcome?,
            }
            found = relation()?;
        }
        // All of the new history is here, and the old commit is not in it. What it had in common with the new one only
        // its own history tells, which a server may still have although nothing points to it.
        if !is_known(&found) && self.receive(old_id, DEPTHS[2], &|_| (), should_stop).is_ok() {
            found = relation()?;
        }
        Ok(found)
    }

    /// Talks with the credentials as they are now, and once more if they were replaced while the server refused them.
    fn let_in<T>(&self, talk: impl Fn(Credentials) -> Result<T, GitError>) -> Result<T, GitError> {
        let credentials = self.access.read(&self.url, &self.source_name)?;
        match talk(credentials.clone()) {
            Err(error @ (GitError::AuthenticationFailed { .. } | GitError::AccessDenied { .. })) => {
                let fresh = self.access.read(&self.url, &self.source_name)?;
                if fresh == credentials { Err(error) } else { talk(fresh) }
            }
            outcome => outcome,
        }
    }

    pub(super) fn merge_base(
        &self,
        one: &CommitId,
        other: &CommitId,
        should_stop: &AtomicBool,
    ) -> Result<Option<CommitId>, GitError> {
        let wanted = [object_id(one, &self.source_name)?, object_id(other, &self.source_name)?];
        for depth in [1].into_iter().chain(DEPTHS) {
            for id in wanted {
                if depth > 1 || !self.store.has(id)? {
                    match self.receive(id, depth, &|_| (), should_stop) {
                        // Too much history to answer is an answer: unknown.
                        Err(GitError::RepositoryTooLarge { .. }) => return Ok(None),
                        outcome => outcome?,
                    }
                }
            }
            let repo = self.store.open()?;
            let objects = Objects { repo: &repo, source_name: &self.source_name };
            if let Some(found) = history::merge_base(&objects, one, other)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Asks for the references that begin with one of the prefixes.
    fn list(&self, prefixes: Vec<String>) -> Result<Advertised, GitError> {
        self.let_in(|credentials| self.list_with(prefixes.clone(), credentials))
    }

    fn list_with(&self, prefixes: Vec<String>, credentials: Credentials) -> Result<Advertised, GitError> {
        let limits = &self.limits;
        let wire = Wire::new(
            &self.source_name,
            Phase::Listing,
            limits.list_timeout,
            limits.connect_timeout,
            limits.reference_bytes,
        );
        let (line_wire, place) = (wire.clone(), self.url.place().clone());
        let means = Means { ssh_program: self.ssh_program.clone(), credentials };
        converse(&wire, &|_| (), &AtomicBool::new(false), move || {
            let refs = with_line(&place, &means, &line_wire, |mut transport| {
                let mut handshake = greet(transport)?;
                if let Some(refs) = handshake.refs.take() {
                    return Ok((handshake, refs));
                }
                let mut wanted = RefPrefixes::new();
                wanted.extend(prefixes.into_iter().map(Into::into));
                let command = LsRefsCommand::new(Some(wanted), &handshake.capabilities, agent());
                let refs = command.invoke_blocking(&mut transport, &mut Discard, false)?;
                // The server may already have closed; it has told us everything.
                let _ = gix::protocol::indicate_end_of_interaction(&mut transport, false);
                Ok((handshake, refs))
            });
            let (handshake, refs) = refs?;
            check_format(&handshake.capabilities, &line_wire.source_name)?;
            Ok(advertised(refs))
        })
    }

    /// Downloads one commit, with `depth` commits of its history, into the store.
    fn receive(
        &self,
        wanted: ObjectId,
        depth: u32,
        progress: &Progress<'_>,
        should_stop: &AtomicBool,
    ) -> Result<(), GitError> {
        self.let_in(|credentials| self.receive_with(wanted, depth, credentials, progress, should_stop))
    }

    fn receive_with(
        &self,
        wanted: ObjectId,
        depth: u32,
        credentials: Credentials,
        progress: &Progress<'_>,
        should_stop: &AtomicBool,
    ) -> Result<(), GitError> {
        progress(Step::Connecting);
        let limits = &self.limits;
        let wire = Wire::new(
            &self.source_name,
            Phase::Fetching,
            limits.fetch_timeout,
            limits.connect_timeout,
            limits.pack_bytes,
        );
        let (line_wire, place) = (wire.clone(), self.url.place().clone());
        let means = Means { ssh_program: self.ssh_program.clone(), credentials };
        let store = self.store.clone();
        let source_name = self.source_name.clone();
        let outcome = converse(&wire, progress, should_stop, move || {
            let locked = store.lock()?;
            if line_wire.halted.load(Ordering::Relaxed) {
                // The caller left while another fetch held the store.
                return Err(GitError::Stopped { source_name, phase: Phase::Fetching });
            }
            if depth == 1 && store.has(wanted)? {
                // Another process was faster.
                return Ok(());
            }
            let repo = locked.prepare()?;
            let haves = store::known_commits(&repo);
            let shallow_file = repo.shallow_file().map_err(|error| locked.failed(&error))?;
            let pack_dir = repo.objects.store_ref().path().join("pack");
            let base_objects = repo.objects.clone();
            with_line(&place, &means, &line_wire, |mut transport| {
                let mut handshake = greet(transport)?;
                let is_v2 = handshake.server_protocol_version == Protocol::V2;
                let mut wants = Wants { wanted, haves: if is_v2 { haves } else { Vec::new() } };
                let take_pack = |pack: &mut dyn std::io::BufRead,
                                 progress: &mut dyn gix::DynNestedProgress,
                                 interrupt: &AtomicBool| {
                    store::write_pack(pack, &pack_dir, progress, interrupt, base_objects).map(|()| true)
                };
                let depth = NonZeroU32::new(depth).unwrap_or(NonZeroU32::MIN);
                gix::protocol::fetch(
                    &mut wants,
                    take_pack,
                    Discard,
                    &line_wire.halted,
                    gix::protocol::fetch::Context {
                        handshake: &mut handshake,
                        transport: &mut transport,
                        user_agent: agent(),
                        trace_packetlines: false,
                    },
                    gix::protocol::fetch::Options {
                        shallow_file,
                        shallow: &Shallow::DepthAtRemote(depth),
                        tags: Tags::None,
                        reject_shallow_remote: false,
                    },
                )?;
                let _ = gix::protocol::indicate_end_of_interaction(&mut transport, false);
                Ok(())
            })?;
            locked.record(wanted)
        });
        match outcome {
            Err(GitError::Protocol { why, .. })
                if why.contains("not our ref") || why.contains("unadvertised") =>
            {
                Err(GitError::CommitNotOffered {
                    source_name: self.source_name.clone(),
                    commit: commit_id(wanted),
                })
            }
            outcome => outcome,
        }
    }
}

/// With what a server is talked to.
struct Means {
    ssh_program: PathBuf,
    credentials: Credentials,
}

/// Connects, lets `talk` use the line, and explains a failure as well as the line can. A fault that the wire has noted
/// explains it better, and wins later.
fn with_line<T>(
    place: &Place,
    means: &Means,
    wire: &Arc<Wire>,
    talk: impl FnOnce(&mut dyn Transport) -> gix::Result<T>,
) -> Result<T, GitError> {
    let mut complaints: Option<(Complaints, String)> = None;
    let outcome = match place {
        Place::Http { is_secure, host, port, path } => {
            let scheme = if *is_secure { "https" } else { "http" };
            let port = port.map(|port| format!(":{port}")).unwrap_or_default();
            let base = format!("{scheme}://{host}{port}{}", path.trim_end_matches('/'));
            let url = gix::url::parse(base.as_str()).map_err(|error| protocol(wire, &error))?;
            talk(&mut connect_http(
                HttpLine::new(wire.clone(), &means.credentials)?,
                url,
                Protocol::V2,
                false,
            ))
        }
        Place::Ssh { user, host, port, path } => {
            let to = Destination { user: user.as_deref(), host, port: *port, path };
            let (mut line, said) = ssh::connect(means, &to, wire)?;
            complaints = Some((said, to.shown()));
            talk(&mut line)
        }
        Place::Local(path) => return Err(GitError::NotARepository { path: path.clone() }),
    };
    outcome.map_err(|error| match complaints {
        Some((said, host)) => said.explain(wire, &host).unwrap_or_else(|| protocol(wire, &error)),
        None => protocol(wire, &error),
    })
}

fn protocol(wire: &Wire, error: &gix::Error) -> GitError {
    let mut why: Vec<String> = Vec::new();
    let mut next: Option<&dyn std::error::Error> = Some(error);
    while let Some(cause) = next {
        let text = cause.to_string();
        if why.last() != Some(&text) {
            why.push(text);
        }
        next = cause.source();
    }
    let why = why.join(": ").chars().filter(|letter| !letter.is_control()).take(500).collect();
    GitError::Protocol { source_name: wire.source_name.clone(), why }
}

fn greet(transport: &mut dyn Transport) -> gix::Result<Handshake> {
    // No credentials: the answer that asks for them has already been noted as the fault.
    gix::protocol::handshake(transport, Service::UploadPack, |_| Ok(None), Vec::new(), &mut Discard)
}

fn agent() -> (&'static str, Option<String>) {
    ("agent", Some(concat!("git/provisor-", env!("CARGO_PKG_VERSION")).into()))
}

fn check_format(capabilities: &Capabilities, source_name: &str) -> Result<(), GitError> {
    let format =
        capabilities.capability("object-format").and_then(|format| format.value().map(ToOwned::to_owned));
    match format {
        Some(format) if format != "sha1" => Err(GitError::UnsupportedRepository {
            source_name: source_name.into(),
            what: "SHA-256 object ids".into(),
        }),
        _ => Ok(()),
    }
}

fn advertised(refs: Vec<Ref>) -> Advertised {
    let mut advertised = Advertised::default();
    for found in refs {
        if found.unpack().0 == "HEAD" {
            let (branch, id) = match found {
                Ref::Symbolic { target, object, .. } => (Some(target.to_string()), Some(object)),
                Ref::Unborn { target, .. } => (Some(target.to_string()), None),
                Ref::Direct { object, .. } | Ref::Peeled { object, .. } => (None, Some(object)),
            };
            advertised.head = Some(AdvertisedHead { branch, id });
            continue;
        }
        let (name, id, peeled) = match &found {
            Ref::Peeled { full_ref_name, tag, object } => (full_ref_name, *tag, Some(*object)),
            Ref::Direct { full_ref_name, object } => (full_ref_name, *object, None),
            Ref::Symbolic { full_ref_name, tag: Some(tag), object, .. } => {
                (full_ref_name, *tag, Some(*object))
            }
            Ref::Symbolic { full_ref_name, tag: None, object, .. } => (full_ref_name, *object, None),
            Ref::Unborn { .. } => continue,
        };
        if let Ok(name) = name.to_str() {
            advertised.tips.push(Tip { name: name.into(), id, peeled });
        }
    }
    advertised
}

/// One object wanted, and what is already here said in one go: no rounds of haggling for one commit.
struct Wants {
    wanted: ObjectId,
    haves: Vec<ObjectId>,
}

impl Negotiate for Wants {
    fn mark_complete_and_common_ref(&mut self) -> gix::Result<Action> {
        Ok(Action::MustNegotiate { remote_ref_target_known: vec![false] })
    }

    fn add_wants(&mut self, arguments: &mut Arguments, _remote_ref_target_known: &[bool]) -> bool {
        arguments.want(self.wanted);
        for have in &self.haves {
            arguments.have(have);
        }
        true
    }

    fn one_round(
        &mut self,
        _state: &mut one_round::State,
        _arguments: &mut Arguments,
        _previous_response: Option<&gix::protocol::fetch::Response>,
    ) -> gix::Result<(Round, bool)> {
        let round = Round {
            haves_sent: self.haves.len(),
            in_vain: 0,
            haves_to_send: 0,
            previous_response_had_at_least_one_in_common: false,
        };
        Ok((round, true))
    }
}
