//! Where a verb finds its fleet: the files on disk as they are now, or a commit of a repository here or elsewhere.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use crate::io::git::{
    self, Access, AccessError, CredentialTemplate, Limits, Purpose, Reference, ReferenceFields,
    RepositoryUrl, Source, Step, Subdirectory, Symlinks, UrlPrefix, UrlRules,
};
use crate::model::repository::Repository;
use crate::ui::console::Console;
use crate::ui::exit::{Exit, Failure};
use crate::ui::progress::Progress;

/// For verbs whose positional arguments are names.
#[derive(Clone, Debug, clap::Args)]
pub struct RepositoryArgs {
    /// The fleet: a directory, read as it is on disk, or the address of a Git repository
    #[arg(long, value_name = "PATH_OR_URL", default_value = ".", env = "PROVISOR_REPO")]
    pub repo: String,
    #[command(flatten)]
    pub at: CommitArgs,
}

/// Which commit, and which part of it.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct CommitArgs {
    /// Read a commit instead of the files on disk: a branch, a tag, a full reference, a commit id or the beginning of one;
    /// or one before it, such as HEAD~1 or main^
    #[arg(long = "ref", value_name = "REF", conflicts_with_all = ["branch", "tag", "semver", "commit"])]
    pub reference: Option<String>,
    /// The newest tag that is a version in a range, such as 1.x, '>=1.2 <2' or '>=1.0.0-0' (with pre-releases)
    #[arg(long, value_name = "RANGE", help_heading = REVISION)]
    pub semver: Option<String>,
    /// What tags have before their version, such as prod/ in prod/v1.2.0
    #[arg(long, value_name = "PREFIX", requires = "semver", help_heading = REVISION)]
    pub tag_prefix: Option<String>,
    /// A tag, also if a branch has the same name
    #[arg(long, value_name = "NAME", help_heading = REVISION)]
    pub tag: Option<String>,
    /// A branch, also if a tag has the same name; with --commit, the branch that must have the commit
    #[arg(long, value_name = "NAME", help_heading = REVISION)]
    pub branch: Option<String>,
    /// A commit by all its 40 digits. The most exact wins: --commit, --semver, --tag, --branch
    #[arg(long, value_name = "ID", help_heading = REVISION)]
    pub commit: Option<String>,
    /// The directory of the fleet inside the repository
    #[arg(long, value_name = "DIR")]
    pub path: Option<String>,
    /// Accept `http://` addresses, where anyone on the way can change the content
    #[arg(long)]
    pub allow_insecure_http: bool,
    /// Accept more, or less, than usual: `files=10000`, `total_bytes=20MiB`, `fetch_timeout=2m`
    #[arg(long = "limit", value_name = "NAME=VALUE")]
    pub limits: Vec<String>,
    /// What happens to symbolic links
    #[arg(long, value_enum, default_value_t, value_name = "RULE", help_heading = ACCESS)]
    pub symlinks: SymlinkRule,
    /// Read submodules whose addresses are below this one; repeat it for more
    #[arg(long, value_name = "PREFIX", help_heading = ACCESS)]
    pub submodules: Vec<String>,
    /// A directory with the files of a Secret: username and password, bearerToken, identity, known_hosts, tls.crt, tls.key, ca.crt
    #[arg(long, value_name = "DIR", help_heading = ACCESS)]
    pub credentials: Option<PathBuf>,
    /// The same for every address below a prefix, if --credentials is not given; the longest prefix wins
    #[arg(long = "credential-template", value_name = "PREFIX=DIR", help_heading = ACCESS)]
    pub templates: Vec<String>,
    /// The host keys that ssh believes; ~/.ssh/known_hosts by default
    #[arg(long, value_name = "FILE", help_heading = ACCESS)]
    pub known_hosts: Option<PathBuf>,
    /// Reach the repository through http://, https:// or socks5h://HOST:PORT, whatever the environment says
    #[arg(long, value_name = "URL", help_heading = ACCESS)]
    pub proxy: Option<String>,
}

/// Where help lists the exact ways to name a commit.
const REVISION: &str = "Which commit, exactly";
/// Where help lists how repositories are reached and read.
const ACCESS: &str = "Reaching and reading repositories";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum SymlinkRule {
    /// None is followed
    #[default]
    Refused,
    /// Followed to files and directories of the same commit
    WithinRepo,
}

impl CommitArgs {
    pub(super) fn limits(&self) -> Result<Limits, git::GitError> {
        let mut limits = Limits::default();
        self.limits.iter().try_for_each(|assignment| limits.set(assignment))?;
        Ok(limits)
    }

    fn symlinks(&self) -> Symlinks {
        match self.symlinks {
            SymlinkRule::Refused => Symlinks::Refused,
            SymlinkRule::WithinRepo => Symlinks::WithinRepository,
        }
    }

    fn access(&self) -> Result<Access, Failure> {
        let mut templates = Vec::new();
        for text in &self.templates {
            let Some((address, directory)) =
                text.rsplit_once('=').filter(|(_, directory)| !directory.is_empty())
            else {
                return Err(git::GitError::from(AccessError::Template { text: text.clone() }).into());
            };
            templates.push(CredentialTemplate { prefix: prefix(address)?, credentials: directory.into() });
        }
        let usual = Access::default();
        Ok(Access {
            credentials: self.credentials.clone(),
            templates,
            known_hosts: self.known_hosts.clone().or(usual.known_hosts),
            proxy: self.proxy.clone(),
        })
    }

    /// The commit that is asked for; `None` if none is.
    fn reference(&self) -> Result<Option<Reference>, git::GitError> {
        if let Some(word) = &self.reference {
            return Ok(Some(Reference::any(word)?));
        }
        let fields = ReferenceFields {
            commit: self.commit.clone(),
            name: None,
            semver: self.semver.clone(),
            tag_prefix: self.tag_prefix.clone(),
            tag: self.tag.clone(),
            branch: self.branch.clone(),
        };
        let is_asked = fields != ReferenceFields::default();
        Ok(is_asked.then(|| fields.choose(Purpose::Review)).transpose()?)
    }

    /// True if a part of some repository is asked for, so that one must be meant.
    pub(super) fn is_asked(&self) -> Result<bool, Failure> {
        self.limits()?;
        Ok(self.reference()?.is_some() || self.path.is_some())
    }

    /// The words that mean the same again. What only opens the way to a repository, such as a directory with its credentials, is
    /// left out: whoever reads them has their own.
    pub(super) fn words(&self) -> Vec<String> {
        // Without `..`, so that a new word is thought of here.
        let Self {
            reference,
            semver,
            tag_prefix,
            tag,
            branch,
            commit,
            path,
            allow_insecure_http,
            limits,
            symlinks,
            submodules,
            credentials: _,
            templates: _,
            known_hosts: _,
            proxy: _,
        } = self;
        let mut words = Vec::new();
        let mut say = |word: &str, value: &str| words.extend([word.to_owned(), value.to_owned()]);
        let single = [
            ("--ref", reference),
            ("--semver", semver),
            ("--tag-prefix", tag_prefix),
            ("--tag", tag),
            ("--branch", branch),
            ("--commit", commit),
            ("--path", path),
        ];
        for (word, value) in single {
            value.iter().for_each(|value| say(word, value));
        }
        limits.iter().for_each(|limit| say("--limit", limit));
        if *symlinks == SymlinkRule::WithinRepo {
            say("--symlinks", "within-repo");
        }
        submodules.iter().for_each(|prefix| say("--submodules", prefix));
        if *allow_insecure_http {
            words.push("--allow-insecure-http".to_owned());
        }
        words
    }

    /// The same, but for the commit.
    fn at(&self, reference: &str) -> Self {
        Self {
            reference: Some(reference.to_owned()),
            semver: None,
            tag_prefix: None,
            tag: None,
            branch: None,
            commit: None,
            ..self.clone()
        }
    }

    /// The source that these words and `place` mean.
    pub(super) fn source(&self, place: &str) -> Result<Source, Failure> {
        let reference = self.reference()?.unwrap_or(Reference::Head);
        let submodules: Result<Vec<UrlPrefix>, Failure> =
            self.submodules.iter().map(|text| prefix(text)).collect();
        Ok(Source {
            reference,
            symlinks: self.symlinks(),
            submodules: submodules?,
            access: self.access()?,
            subdirectory: Subdirectory::parse(self.path.as_deref().unwrap_or_default())?,
            limits: self.limits()?,
            allow_insecure_http: self.allow_insecure_http,
            ..Source::new(place)
        })
    }
}

impl RepositoryArgs {
    pub fn open(&self, console: &Console) -> Result<Repository, Failure> {
        open(&self.repo, &self.at, console)
    }

    /// The same fleet at another commit.
    pub fn open_at(&self, reference: &str, console: &Console) -> Result<Repository, Failure> {
        open(&self.repo, &self.at.at(reference), console)
    }
}

/// The beginning of addresses, as an option names it.
fn prefix(text: &str) -> Result<UrlPrefix, Failure> {
    UrlPrefix::parse(text)
        .map_err(|error| Failure { exit: Exit::Usage, ..Failure::from(git::GitError::from(error)) })
}

/// Reads the files of `place`.
pub fn open(place: &str, at: &CommitArgs, console: &Console) -> Result<Repository, Failure> {
    let rules = UrlRules { allow_insecure_http: at.allow_insecure_http, allow_local: true };
    let url = RepositoryUrl::parse(place, rules).map_err(git::GitError::from)?;
    let is_plain_path = !place.starts_with("file:");
    if let Some(directory) = url.local_path().filter(|path| is_plain_path && !is_bare(path))
        && at.reference()?.is_none()
    {
        let subdirectory = Subdirectory::parse(at.path.as_deref().unwrap_or_default())?;
        return Ok(git::read_directory(
            &directory.join(subdirectory.as_str()),
            &at.limits()?,
            at.symlinks(),
        )?);
    }
    let source = git::open(&at.source(place)?, &cache())?;
    let progress = Progress::start(console, &format!("reading {}", source.name()));
    let resolved = source.resolve()?;
    let report = |step: Step| match step {
        Step::Connecting => progress.step("connecting", source.name()),
        Step::Listing => progress.step("listing references of", source.name()),
        Step::Receiving { bytes } => progress.step("receiving", &format!("{} KiB", bytes / 1024)),
        Step::Reading => progress.step("reading", source.name()),
    };
    Ok(source.fetch(&resolved, &report, &AtomicBool::new(false))?)
}

/// A proposal beside what it is proposed for, and the commit that both come from.
pub struct Proposal {
    pub base: Repository,
    pub head: Repository,
    pub ancestor: Repository,
}

/// Reads two commits of `place`, which is never taken as it is on disk, and the one that both come from.
pub fn open_proposal(
    place: &str,
    base: &str,
    head: &str,
    at: &CommitArgs,
    console: &Console,
) -> Result<Proposal, Failure> {
    let progress = Progress::start(console, "reading both revisions");
    let opened = |word: &str| -> Result<_, Failure> {
        let source = CommitArgs { reference: Some(word.to_owned()), ..at.clone() }.source(place)?;
        Ok(git::open(&source, &cache())?)
    };
    let report = |step: Step| match step {
        Step::Receiving { bytes } => progress.step("receiving", &format!("{} KiB", bytes / 1024)),
        _ => progress.step("reading", place),
    };
    let never = AtomicBool::new(false);
    let read = |word: &str| -> Result<_, Failure> {
        let source = opened(word)?;
        let resolved = source.resolve()?;
        Ok((source.fetch(&resolved, &report, &never)?, source))
    };
    let (base_files, source) = read(base)?;
    let (head_files, _) = read(head)?;
    let (one, other) = (&base_files.revision.commit, &head_files.revision.commit);
    let Some(ancestor) = source.merge_base(one, other, &never)? else {
        return Err(Failure::outside(format!(
            "`{base}` and `{head}` have no commit in common, as far as history is here"
        ))
        .help("A shallow clone hides it: fetch the whole history (`fetch-depth: 0`, `GIT_DEPTH: 0`)."));
    };
    let ancestor = if ancestor == *one {
        base_files.clone()
    } else {
        let resolved = git::Resolved { commit: ancestor, reference: None, tag: None, version: None };
        source.fetch(&resolved, &report, &never)?
    };
    Ok(Proposal { base: base_files, head: head_files, ancestor })
}

/// Whether a directory is the inside of a Git repository, which has no files of its own on disk.
fn is_bare(path: &Path) -> bool {
    !path.join("fleet.toml").exists() && path.join("HEAD").is_file() && path.join("objects").is_dir()
}

/// Where object stores of remote repositories are kept between runs; may be deleted at any time.
pub fn cache() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("XDG_CACHE_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .unwrap_or_else(std::env::temp_dir)
        .join("provisor")
}
