//! `provisor run --kubeconfig FILE`: the cluster is real; the machines are real or simulated, and the first line says which.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sha2::{Digest, Sha256};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::commits::Commits;
use super::ec2::Ec2Args;
use super::provisioner::{Agreed, Standing, notice_held, policy};
use super::stop::Stop;
use super::{Args, Said, deadline, not_understood, typed};
use crate::capacity::engine::EngineSettings;
use crate::capacity::upkeep::Upkeep;
use crate::controllers::live::{Ended, Ledger, Live, LiveSettings, Report};
use crate::controllers::recorder::{Recorder, RecordingSettings};
use crate::gitops::text_form::is_name;
use crate::io::clock;
use crate::io::cloud::aws::Account;
use crate::io::cloud::nobody::Nobody;
use crate::io::cloud::simulated::{Kubelet, SimulatedProvider, SimulatedSettings, is_simulated};
use crate::io::cloud::{CloudProvider, CloudUnavailable, HAS_AWS, aws_unavailable};
use crate::io::kube::lease::{self, Held, LeaseSettings, Permit};
use crate::io::kube::lookout::{Holder, Lookout};
use crate::io::kube::{Address, Kube, KubeError};
use crate::model::observation::Observation;
use crate::model::owner::Owner;
use crate::model::provisioner::Provisioner;
use crate::model::time::parse_duration;
use crate::ui::cli::catalog::CatalogArgs;
use crate::ui::cli::plan::BehaviorArgs;
use crate::ui::cli::recording::run_now;
use crate::ui::console::{Console, Tone};
use crate::ui::exit::{Exit, Failure};
use crate::ui::interrupt::Ending;
use crate::ui::live_story::{Consent, LiveStory};
use crate::ui::metrics::{EndpointArgs, Metered, Metrics, Watched, serve};
use crate::ui::story::say;

/// Who knew nothing of the cluster, because the API server did not answer, asks again after so long.
const START_RETRY: Duration = Duration::from_secs(5);
/// How old the known version of the cluster may be (aws.md 4.15).
const VERSION_PERIOD: Duration = Duration::from_secs(300);

/// How often it is looked whether somebody else acts in the cluster, and how often while somebody does.
const OTHERS_PERIOD: Duration = Duration::from_secs(10);
const OTHERS_RETRY: Duration = Duration::from_secs(5);

/// What only a real cluster needs.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "A real cluster")]
pub struct LiveArgs {
    /// Run on the cluster that this kubeconfig names
    #[arg(long, value_name = "FILE", env = "PROVISOR_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; its current one by default
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    context: Option<String>,
    /// Who sells the machines; by default the `cloud` that the environment names. Without --kubeconfig this runs on the
    /// cluster that the program's own pod is in
    #[arg(long, value_enum, value_name = "CLOUD")]
    pub cloud: Option<CloudKind>,
    /// Where the lease and the record of what was applied are kept; by default the kubeconfig's namespace, or the pod's
    #[arg(long, value_name = "NAME", value_parser = plain_name)]
    pub(super) namespace: Option<String>,
    /// Tells this installation from others that share a cluster's objects
    #[arg(long, value_name = "NAME", default_value = "provisor", value_parser = plain_name)]
    pub(super) installation: String,
    /// Act without a lease: only where no second replica can be
    #[arg(long)]
    no_lease: bool,
    /// Requests to the API server a second, at most
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) kube_qps: u32,
    #[command(flatten)]
    endpoints: EndpointArgs,
    #[command(flatten)]
    catalog: CatalogArgs,
    /// How long a simulated machine takes to join
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    simulated_boot: String,
    /// Of a hundred times, so often each of the three offerings that an order asks for first has no capacity for three
    /// minutes in the simulated cloud
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    simulated_shortage: u32,
    /// Make only the Node objects of simulated machines: something else plays their kubelets
    #[arg(long)]
    no_simulated_kubelets: bool,
    #[command(flatten)]
    ec2: Ec2Args,
    #[command(flatten)]
    behavior: BehaviorArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum CloudKind {
    /// Machines that exist only as objects; nothing is bought
    Simulated,
    /// EC2
    Aws,
}

impl CloudKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Simulated => "simulated",
            Self::Aws => "aws",
        }
    }
}

impl LiveArgs {
    /// Whether the command line speaks of a real cluster at all.
    pub fn is_wanted(&self) -> bool {
        self.kubeconfig.is_some() || self.cloud.is_some()
    }

    /// Flags that were given although there is no real cluster for them.
    pub fn in_vain(&self) -> Option<Failure> {
        let given = [
            ("--metrics-address", self.endpoints.metrics_address.is_some()),
            ("--health-address", self.endpoints.health_address.is_some()),
            ("--namespace", self.namespace.is_some()),
            ("--no-lease", self.no_lease),
        ];
        let (flag, _) = given.into_iter().find(|(_, is_given)| *is_given)?;
        let help =
            "Name the cluster with --kubeconfig FILE, or, in a pod of it, who sells machines with --cloud.";
        Some(Failure::usage(format!("{flag} is for a real cluster, and none is named")).help(help))
    }

    pub(super) fn address(&self) -> Address {
        Address { kubeconfig: self.kubeconfig.clone(), context: self.context.clone() }
    }

    fn simulated(&self, owner: Owner, seed: u64) -> Result<SimulatedSettings, Failure> {
        Ok(SimulatedSettings {
            owner: Some(owner),
            seed,
            boot: parse_duration(&self.simulated_boot).map_err(|error| Failure::usage(error.to_string()))?,
            shortage_permille: self.simulated_shortage * 10,
            has_kubelets: !self.no_simulated_kubelets,
        })
    }
}

/// What a process does for an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Duty {
    /// Keeps the objects that an installed Karpenter goes by.
    Sync,
    /// Provisions as well, with machines of this cloud.
    Provision(CloudKind),
}

impl Duty {
    /// As the command line has `said` and an environment of such a `provisioner` has `written`.
    fn of(
        said: Option<CloudKind>,
        environment: &str,
        (provisioner, written): (Provisioner, Option<&str>),
    ) -> Result<Self, Failure> {
        match provisioner {
            Provisioner::Karpenter => refuse_simulation(said, environment, written).map(|()| Self::Sync),
            Provisioner::Provisor => match seller(said, environment, written)? {
                CloudKind::Aws if !HAS_AWS => Err(aws_unavailable().into()),
                seller => Ok(Self::Provision(seller)),
            },
        }
    }

    /// Who sells the machines, as metrics name it.
    fn cloud(self) -> &'static str {
        match self {
            Self::Sync => "none",
            Self::Provision(kind) => kind.as_str(),
        }
    }

    /// Whether a process that runs may go on with `next`. Who sells cannot change under machines that run.
    fn may_become(self, next: Self) -> Result<(), Failure> {
        match (self, next) {
            (Self::Provision(former), Self::Provision(next)) if former != next => {
                let (former, next) = (former.as_str(), next.as_str());
                let message = format!(
                    "`cloud` changes from {former} to {next}, and this process runs with machines of {former}"
                );
                Err(Failure::usage(message)
                    .help("take it back, or let the machines go and start the process again"))
            }
            _ => Ok(()),
        }
    }
}

/// Who sells the machines, as the command line says, or the environment has `written`. Nothing is bought for an environment whose
/// commits call for simulated machines, whatever the command line says.
fn seller(said: Option<CloudKind>, environment: &str, written: Option<&str>) -> Result<CloudKind, Failure> {
    // Another word does not validate.
    let written = written.and_then(|word| <CloudKind as clap::ValueEnum>::from_str(word, false).ok());
    match (said, written) {
        (Some(CloudKind::Aws), Some(CloudKind::Simulated)) => {
            let message = format!(
                "--cloud aws would buy machines for {environment}, which has `cloud = \"simulated\"`"
            );
            Err(Failure::usage(message)
                .help("take one of them away, or choose another environment with --env"))
        }
        (Some(kind), _) | (None, Some(kind)) => Ok(kind),
        (None, None) => {
            let help = "write `cloud = \"simulated\"` or `cloud = \"aws\"` into the environment, or add --cloud simulated to try it \
                        without buying anything, or --cloud aws";
            Err(Failure::usage("nothing says who sells the machines").help(help))
        }
    }
}

/// A command, and what it has in common with itself whenever it begins anew.
struct Session<'a> {
    args: &'a Args,
    behavior: EngineSettings,
    console: &'a Console,
    lines: mpsc::Receiver<String>,
    /// What is measured, and where it is served: from when it began until it ends.
    served: Option<(Metrics, JoinSet<()>)>,
    /// Who is to provision from now on, as was found while it ran.
    agreed: Option<Agreed>,
    /// Who did when the record was read last, for a cluster that takes too long to say so.
    recorded: Option<Provisioner>,
    /// When all of it ends: known from when it first ran.
    stop: Option<Stop>,
}

pub(super) fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let behavior = args.live.behavior.settings(console)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::outside("the event loop cannot be started").caused_by(&error))?;
    let lines = typed();
    let mut session =
        Session { args, behavior, console, lines, served: None, agreed: None, recorded: None, stop: None };
    let outcome = runtime.block_on(async {
        // Once it ran, what it begins anew with does not end it.
        let (mut has_run, mut complaint) = (false, String::new());
        loop {
            let begun = async { live(&mut session, Commits::open(args).await?).await };
            match begun.await {
                Ok(Kept::Until(exit)) => return Ok(exit),
                Ok(Kept::ByOthers { agreed, recorded }) => {
                    console.notice("somebody else provisions from now on: beginning anew");
                    (session.agreed, session.recorded) = (agreed, recorded);
                    (has_run, complaint) = (true, String::new());
                }
                Err(failure) => {
                    let Some(stop) = session.stop.clone().filter(|_| has_run) else { return Err(failure) };
                    if complaint != failure.message {
                        console.complain(&failure);
                        complaint.clone_from(&failure.message);
                    }
                    tokio::select! {
                        () = tokio::time::sleep(START_RETRY) => {}
                        ending = stop.comes() => return Ok(exit_of(ending, console)),
                    }
                }
            }
        }
    });
    // Requests that nobody waits for any more must not keep the program.
    runtime.shutdown_timeout(Duration::from_millis(200));
    outcome
}

/// The last word, if anybody wants it to end.
fn exit_of(ending: Option<Ending>, console: &Console) -> Exit {
    let Some(ending) = ending else { return Exit::Done };
    console.talk(&format!("{}; what runs in the cluster stays as it is", ending.word()));
    Exit::Interrupted
}

/// Until when an environment was kept.
enum Kept {
    Until(Exit),
    /// Somebody else provisions: by what was agreed while it ran, or as the record and the rules have it.
    ByOthers {
        agreed: Option<Agreed>,
        recorded: Option<Provisioner>,
    },
}

async fn live(session: &mut Session<'_>, mut commits: Commits) -> Result<Kept, Failure> {
    let (args, console) = (session.args, session.console);
    let asking = Standing::ask(args, &commits, session.agreed);
    let provisioner = match commits.provisioner() {
        // Whoever holds the lease asks again: a cluster that does not answer keeps nobody from waiting for it.
        Some(named) => {
            let asked = tokio::time::timeout(START_RETRY, asking).await;
            asked.ok().and_then(Result::ok).flatten().or(session.recorded).unwrap_or(named)
        }
        None => {
            let standing = asking.await.inspect_err(|_| {
                if let Some(trouble) = commits.trouble() {
                    console.complain(&trouble);
                }
            });
            standing?.unwrap_or_default()
        }
    };
    // Who sells is a matter of whoever provisions, which a Karpenter goes on doing as long as the commit may not change it.
    let is_held = commits.provisioner().is_some_and(|named| named != provisioner);
    let cloud = commits.cloud().filter(|_| !is_held || provisioner == Provisioner::Provisor);
    let duty = match Duty::of(args.live.cloud, commits.environment(), (provisioner, cloud)) {
        Ok(duty) => duty,
        // Who sells may not be known because the commit cannot be read: then that is what is wrong.
        Err(failure) if commits.provisioner().is_none() => return Err(commits.trouble().unwrap_or(failure)),
        // Of a commit that cannot be used, the cluster stays as the last good one left it.
        Err(failure) => {
            let former = Standing::recorded(args, &commits).await?.unwrap_or_default();
            // Only who provisions is as it was: what the commit says of machines that are bought holds.
            let Ok(duty) = Duty::of(args.live.cloud, commits.environment(), (former, commits.cloud())) else {
                return Err(failure);
            };
            commits.refuse(failure);
            duty
        }
    };
    match duty {
        Duty::Sync => beside_karpenter(session, commits).await,
        Duty::Provision(CloudKind::Simulated) => on_simulated(session, commits).await,
        Duty::Provision(CloudKind::Aws) => on_ec2(session, commits).await,
    }
}

/// Whoever calls for simulated machines pays for none: an installed Karpenter would buy some for what is applied.
fn refuse_simulation(
    said: Option<CloudKind>,
    environment: &str,
    written: Option<&str>,
) -> Result<(), Failure> {
    let place = match (said, written) {
        (Some(CloudKind::Simulated), _) => "--cloud simulated",
        (_, Some("simulated")) => "`cloud = \"simulated\"`",
        _ => return Ok(()),
    };
    let message = format!(
        "{environment} has `engine = \"karpenter\"`: Karpenter buys machines for what is applied, and {place} says that nothing is bought"
    );
    Err(Failure::usage(message).help("take one of them away"))
}

/// Keeps the objects that an installed Karpenter goes by; nothing is bought or ended here, whatever the command line says.
async fn beside_karpenter(session: &mut Session<'_>, commits: Commits) -> Result<Kept, Failure> {
    let (args, console) = (session.args, session.console.of_real_machines());
    let kube = Kube::connect(&args.live.address(), args.live.kube_qps).await?;
    let first = format!(
        "{} provisions in the cluster {}; Provisor renders and syncs the objects that it goes by\n",
        console.paint(Tone::Notice, "Karpenter"),
        kube.host()
    );
    say(&console, &first)?;
    commits.introduce(&console)?;
    let engine = EngineSettings { provisioner: Provisioner::Karpenter, ..session.behavior.clone() };
    let make = || (Arc::new(Nobody), Box::new(|_: &Observation| {}) as Listener);
    keep(session, console, kube, commits, (Duty::Sync, engine), make).await
}

async fn on_simulated(session: &mut Session<'_>, commits: Commits) -> Result<Kept, Failure> {
    let (args, console) = (session.args, *session.console);
    let address = args.live.address();
    let kube = Kube::connect(&address, args.live.kube_qps).await?;
    let owner = Owner::new(&args.live.installation, commits.environment());
    let machines = match kube.machines_of(owner).await {
        // Whoever asks next waits for the answer; nothing real can be ended by a simulation meanwhile.
        Err(error) if error.is_transient() => Vec::new(),
        machines => machines?,
    };
    if let Some((claim, machine)) = machines.iter().find(|(_, machine)| !is_simulated(machine)) {
        let message =
            format!("{claim} of {} has the machine {machine}, which is real", commits.environment());
        let help = "nothing simulated can run its pods or end it: run with --cloud aws, or try it on another cluster";
        return Err(Failure::usage(message).help(help));
    }
    let first = format!(
        "{} the cluster {} and the commits are real; EC2 and its machines are simulated, nothing is bought\n",
        console.paint(Tone::Notice, "Simulated:"),
        kube.host()
    );
    say(&console, &first)?;
    commits.introduce(&console)?;
    let catalog = args.live.catalog.open(|| commits.region())?;
    let seed = args.seed.unwrap_or_else(|| seed_of(&args.live.installation, commits.environment()));
    // Kubelets have a pace of their own: in a real cluster each has its own connection.
    let theirs =
        Kube::connect_as("simulated-kubelets", &address, args.live.kube_qps.saturating_mul(2)).await?;
    let settings = args.live.simulated(owner, seed)?;
    let make = move || {
        let kubelet = Kubelet::new(theirs.clone(), settings.has_kubelets);
        let provider = Arc::new(SimulatedProvider::new(settings.clone(), catalog.clone(), kubelet));
        let listener = provider.clone();
        (provider, Box::new(move |seen: &Observation| listener.observe(seen)) as Listener)
    };
    let engine = EngineSettings { seed, ..session.behavior.clone() };
    keep(session, console, kube, commits, (Duty::Provision(CloudKind::Simulated), engine), make).await
}

async fn on_ec2(session: &mut Session<'_>, commits: Commits) -> Result<Kept, Failure> {
    let (live, console) = (&session.args.live, session.console.of_real_machines());
    let account = Account::of_environment(live.catalog.region_alone()?).await?;
    let Some(region) = account.region().map(str::to_owned) else {
        return Err(Failure::usage("nothing says in which region machines are bought")
            .help("add --region, or set AWS_REGION"));
    };
    let kube = Kube::connect(&live.address(), live.kube_qps).await?;
    let owner = Owner::new(&live.installation, commits.environment());
    let joining = kube.joining().await?;
    let (states, version) = watch::channel(joining.version.clone());
    let settings = live.ec2.settings(owner, &region, (joining, version), live.kubeconfig.is_none())?;
    tokio::spawn(follow_version(kube.clone(), states));
    let first = format!(
        "{} machines are bought from EC2 in {region} for the cluster {} at {}, Kubernetes {}; {}\n",
        console.paint(Tone::Notice, "Real:"),
        settings.cluster.name,
        settings.cluster.endpoint,
        *settings.version.borrow(),
        settings.queue.as_ref().map_or_else(
            || "nobody tells when they are taken back".to_owned(),
            |queue| format!("the queue {queue} tells when they are taken back")
        )
    );
    say(&console, &first)?;
    commits.introduce(&console)?;
    let seed = session.args.seed.unwrap_or_else(|| seed_of(&live.installation, commits.environment()));
    // A new one whenever the lease was got: another replica may have bought meanwhile.
    let make =
        move || (Arc::new(account.provider(settings.clone())), Box::new(|_: &Observation| {}) as Listener);
    let engine = EngineSettings { seed, ..session.behavior.clone() };
    keep(session, console, kube, commits, (Duty::Provision(CloudKind::Aws), engine), make).await
}

/// A cluster is upgraded while this process runs: images are those of the version that it has then.
async fn follow_version(kube: Kube, states: watch::Sender<String>) {
    loop {
        tokio::time::sleep(VERSION_PERIOD).await;
        match kube.version().await {
            Ok(version) => {
                let is_new = states.send_if_modified(|known| {
                    let is_new = *known != version;
                    known.clone_from(&version);
                    is_new
                });
                if is_new {
                    tracing::info!(version, "The cluster has another version of Kubernetes.");
                }
            }
            Err(error) => tracing::debug!("the version of the cluster is not known: {error}"),
        }
    }
}

type Listener = Box<dyn Fn(&Observation) + Send>;

/// Holds the lease and lives; begins again when the lease was lost.
async fn keep<P: CloudProvider>(
    session: &mut Session<'_>,
    console: Console,
    kube: Kube,
    mut commits: Commits,
    (duty, engine): (Duty, EngineSettings),
    make: impl Fn() -> (Arc<P>, Listener),
) -> Result<Kept, Failure> {
    let Session { args, lines, served, agreed, stop, .. } = session;
    let (args, console) = (*args, &console);
    let namespace = args.live.namespace.clone().unwrap_or_else(|| kube.namespace().to_owned());
    let environment = commits.environment().to_owned();
    let owner = Owner::new(&args.live.installation, &environment);
    if let Some(mut trouble) = commits.trouble() {
        // Nodes are kept as the last good commit left the cluster; where none was ever applied there is nothing to keep.
        match Ledger::of(&owner, &namespace, engine.provisioner).read(&kube).await {
            Ok(Some(_)) => {}
            Ok(None) => return Err(trouble),
            Err(unknown) => {
                console.complain(&trouble);
                return Err(unknown.into());
            }
        }
        let also = if trouble.message.is_empty() { String::new() } else { format!(": {}", trouble.message) };
        trouble.message =
            format!("no commit can be used yet; the cluster stays as the last good one left it{also}");
        console.complain(&trouble);
    }
    let (policy, standing) = (policy(args), Standing::of(args, kube.clone(), &environment));
    let recording = args.recording.place()?;
    let lease = LeaseSettings::of(&owner, &namespace, &holder());
    let (reports, mut told) = mpsc::unbounded_channel();
    let stop = match stop {
        Some(stop) => stop.clone(),
        None => stop.insert(Stop::listen(deadline(args)?)?).clone(),
    };
    let last_word = *console;
    let stop = async move { exit_of(stop.comes().await, &last_word) };
    let (said, of_commits) = (args.live.cloud, environment.clone());
    let mut commits = commits.follow(*console, move |desired| {
        Duty::of(said, &of_commits, (desired.provisioner, desired.cloud.as_deref()))
            .and_then(|next| duty.may_become(next))
    });
    let words = commits.words();
    let metrics = match served {
        Some((metrics, _)) => metrics.clone(),
        None => {
            let hides_objects = args.live.endpoints.disable_cluster_state_observability;
            let metrics = Metrics::of(Watched { owner: Some(owner), hides_objects });
            let listening = serve(&args.live.endpoints, &metrics).await?;
            served.insert((metrics, listening)).0.clone()
        }
    };
    // Ended by its time, it has to have seen a cluster.
    let in_time = |exit| match exit {
        Exit::Done if !metrics.is_ready() => Err(unseen(kube.host(), args)),
        exit => Ok(Kept::Until(exit)),
    };
    let provisioner = engine.provisioner;
    let provisions = provisioner == Provisioner::Provisor;
    let mut others = Others {
        karpenters: Lookout::for_karpenter(),
        twins: (!args.live.no_lease).then(|| Lookout::for_twins(&lease)),
        hesitates_since: None,
    };
    let (mut told_of, mut told_held, mut still_held) = (None, None, None::<Held>);
    let living = async {
        let mut stop = std::pin::pin!(stop);
        loop {
            // Whoever waits keeps its turn among those that wait.
            let held = if let Some(held) = still_held.take().filter(|held| held.permit.is_valid()) {
                Some(held)
            } else if args.live.no_lease {
                None
            } else {
                let waiting = |holder: &str| {
                    metrics.set_ready();
                    console.notice(&format!("{holder} acts; this replica waits"));
                };
                tokio::select! {
                    held = lease::acquire(&kube, &lease, clock::now, waiting) => Some(held?),
                    exit = &mut stop => return in_time(exit),
                }
            };
            let permit = held.as_ref().map_or_else(Permit::unlimited, |held| held.permit.clone());
            let named = commits.provisioner();
            let acts = match standing.in_force(named, *agreed).await {
                Ok(Some(other)) if other != provisioner => {
                    if let Some(held) = held {
                        held.give_back().await;
                    }
                    return Ok(Kept::ByOthers { agreed: None, recorded: Some(other) });
                }
                Ok(_) => {
                    if let Some(named) =
                        named.filter(|named| *named != provisioner && told_held != Some(*named))
                    {
                        notice_held(console, &environment, named, provisioner);
                    }
                    told_held = named;
                    others.look_first(&kube).await
                }
                Err(error) => Err(error),
            };
            if let Ok(found) = &acts {
                if told_of.as_ref() != Some(found) {
                    notice_other(console, found.as_ref(), provisions);
                    told_of = Some(found.clone());
                }
                if found.as_ref().is_some_and(|other| other.holds_up(provisions)) {
                    metrics.set_ready();
                    tokio::select! {
                        () = tokio::time::sleep(OTHERS_RETRY) => {
                            still_held = held;
                            continue;
                        }
                        exit = &mut stop => {
                            if let Some(held) = held {
                                held.give_back().await;
                            }
                            return in_time(exit);
                        }
                    }
                }
            }
            let (provider, listener) = make();
            let provider = Arc::new(Metered::new(provider, duty.cloud(), metrics.clone()));
            metrics.begin(clock::now());
            let counted = metrics.clone();
            let listener: Listener = Box::new(move |seen| {
                counted.see(clock::now(), seen);
                listener(seen);
            });
            let upkeep = if provider.has_belongings() { Upkeep::Belongings } else { Upkeep::Classes };
            let engine = EngineSettings {
                foresees_pods: true,
                nominates: true,
                owner: Some(owner),
                upkeep: Some(upkeep),
                ..engine.clone()
            };
            let recording = recording.clone().map(|place| RecordingSettings {
                place,
                run: run_now(),
                environment: environment.clone(),
                is_simulated: console.is_simulated(),
                engine: engine.clone(),
            });
            let settings = LiveSettings {
                environment: environment.clone(),
                policy: policy.clone(),
                engine,
                ledger: Ledger::of(&owner, &namespace, provisioner),
                recorder: recording.and_then(|settings| start_recorder(settings, &metrics)),
            };
            let live = match acts {
                Ok(_) => {
                    Live::start(kube.clone(), provider, permit, settings, listener, reports.clone()).await
                }
                Err(error) => Err(error),
            };
            let live = match live {
                Ok(live) => {
                    // It is in the record now.
                    *agreed = None;
                    live
                }
                Err(error) => {
                    let may_wait = held.is_some() && error.is_transient();
                    if let Some(held) = held {
                        held.give_back().await;
                    }
                    if !may_wait {
                        return Err(error.into());
                    }
                    tracing::warn!("the cluster is not known yet: {error}; trying again");
                    tokio::select! {
                        () = tokio::time::sleep(START_RETRY) => continue,
                        exit = &mut stop => return in_time(exit),
                    }
                }
            };
            let newest = commits.newest();
            let ended = tokio::select! {
                ended = live.run(newest, commits.events()) => Some(ended),
                () = others.hold_up(&kube, provisions) => None,
                exit = &mut stop => {
                    if let Some(held) = held {
                        held.give_back().await;
                    }
                    return in_time(exit);
                }
            };
            match ended {
                // Somebody came, and is told of when seen again.
                None => still_held = held,
                Some(Ended::PermitLost) => {
                    console.notice("the lease is lost; nothing is done until it is back");
                }
                Some(Ended::SourceGone) => return Ok::<Kept, Failure>(Kept::Until(Exit::Outside)),
                Some(Ended::ProvisionerChanged(named)) => {
                    if let Some(held) = held {
                        held.give_back().await;
                    }
                    return Ok(Kept::ByOthers {
                        agreed: Some(Agreed { named, instead_of: provisioner }),
                        recorded: None,
                    });
                }
            }
        }
    };
    let mut living = std::pin::pin!(living);
    let consent = Consent { environment: environment.clone(), can_type: std::io::stdin().is_terminal() };
    let story = LiveStory::new(console, consent);
    loop {
        tokio::select! {
            outcome = &mut living => return outcome,
            Some(line) = lines.recv() => match Said::read(&line) {
                Said::Nothing => {}
                Said::Confirm(named) => words.confirm(named),
                Said::Other => console.notice(&not_understood(&line)),
            },
            Some(report) = told.recv() => {
                match &report {
                    Report::Decided(decision) => metrics.decided(clock::now(), decision),
                    Report::Planned(took) => metrics.planned(*took),
                    Report::Synced { .. } | Report::Git(_) => {}
                }
                story.tell(&report)?;
            }
        }
    }
}

/// Somebody else who acts in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Other {
    Karpenter(Holder),
    /// Another process of this installation and environment.
    Twin(Holder),
}

impl Other {
    /// Beside a Karpenter that provisions, objects can be kept.
    fn holds_up(&self, provisions: bool) -> bool {
        provisions || matches!(self, Self::Twin(_))
    }
}

struct Others {
    karpenters: Lookout,
    twins: Option<Lookout>,
    /// Since when somebody is seen who has to give way to us and may not know it yet.
    hesitates_since: Option<Instant>,
}

impl Others {
    /// The first of those whom we have to give way to; else somebody who has to give way to us.
    async fn look(&mut self, kube: &Kube, now: Timestamp) -> Result<Option<Other>, KubeError> {
        let twin = match &mut self.twins {
            Some(twins) => twins.look(kube, now).await?,
            None => None,
        };
        match twin {
            Some(twin) if twin.comes_first => Ok(Some(Other::Twin(twin))),
            twin => {
                let karpenter = self.karpenters.look(kube, now).await?;
                Ok(karpenter.map(Other::Karpenter).or(twin.map(Other::Twin)))
            }
        }
    }

    /// Looks before anything is done: whoever has to give way to us gets the time to see that we are there.
    async fn look_first(&mut self, kube: &Kube) -> Result<Option<Other>, KubeError> {
        let found = self.look(kube, clock::now()).await?;
        let Some(Other::Twin(Holder { comes_first: false, .. })) = &found else {
            self.hesitates_since = None;
            return Ok(found);
        };
        let since = *self.hesitates_since.get_or_insert_with(Instant::now);
        Ok(found.filter(|_| since.elapsed() < 2 * OTHERS_PERIOD))
    }

    /// Returns once somebody acts beside whom we may not. An API server that does not answer has told of nobody.
    async fn hold_up(&mut self, kube: &Kube, provisions: bool) {
        loop {
            tokio::time::sleep(OTHERS_PERIOD).await;
            match self.look(kube, clock::now()).await {
                Ok(Some(Other::Twin(twin))) if !twin.comes_first => {}
                Ok(Some(other)) if other.holds_up(provisions) => return,
                Ok(_) => {}
                Err(error) => tracing::debug!("whether somebody else acts here is not known: {error}"),
            }
        }
    }
}

/// Says who else acts, if that is worth a word.
fn notice_other(console: &Console, found: Option<&Other>, provisions: bool) {
    match (found, provisions) {
        (Some(Other::Twin(Holder { namespace, name, .. })), _) => console.notice(&format!(
            "another process acts for this installation and environment ({name}, by its lease in {namespace}): nothing is done \
             until it is gone. Replicas have one --namespace; others have an --installation of their own"
        )),
        (Some(Other::Karpenter(Holder { namespace, name, .. })), true) => console.notice(&format!(
            "Karpenter acts in this cluster ({name}, by its lease in {namespace}): nothing is done until it is gone. Take it \
             away, or write `engine = \"karpenter\"` into the environment, and Provisor only syncs the objects"
        )),
        (None, false) => console.notice("no Karpenter holds its lease here: pods wait until one does"),
        (Some(Other::Karpenter(_)), false) | (None, true) => {}
    }
}

/// The time of `--for` passed before the cluster was known.
fn unseen(host: &str, args: &Args) -> Failure {
    let time = args.duration.as_deref().unwrap_or_default();
    Failure::outside(format!("nothing was known of the cluster {host} when the {time} of --for had passed"))
        .help(
            "what the API server answered, if it did, is in the log above; give it longer, or see that it can be reached",
        )
}

/// A cluster is kept with or without a recording.
fn start_recorder(settings: RecordingSettings, metrics: &Metrics) -> Option<Recorder> {
    Recorder::start(settings, metrics.recording())
        .inspect_err(|error| tracing::warn!("nothing is recorded: no thread can be started: {error}"))
        .ok()
}

/// It is part of labels, or of the addresses of objects.
fn plain_name(text: &str) -> Result<String, String> {
    let wrong = "a name has lower-case letters, digits and dashes inside, 63 of them at most";
    is_name(text).then(|| text.to_owned()).ok_or_else(|| wrong.to_owned())
}

/// Two processes never have the same.
fn holder() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "provisor".into());
    format!("{host}_{}_{:x}", std::process::id(), clock::now().as_nanosecond() & 0xffff_ffff)
}

/// The same for every replica of an installation and environment.
fn seed_of(installation: &str, environment: &str) -> u64 {
    let digest = Sha256::digest(format!("{installation}/{environment}"));
    digest.iter().take(8).fold(0, |seed, byte| seed << 8 | u64::from(*byte))
}

impl From<CloudUnavailable> for Failure {
    fn from(error: CloudUnavailable) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<KubeError> for Failure {
    fn from(error: KubeError) -> Self {
        match &error {
            KubeError::Kubeconfig { .. } => Self::input(error.to_string()),
            KubeError::NoDefinitions { .. } => Self::input(error.to_string()),
            KubeError::NotInCluster(_) => Self::usage(error.to_string()),
            _ => Self::outside(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_no_path() {
        assert_eq!(plain_name("team-1"), Ok("team-1".to_owned()));
        for wrong in ["", "Team", "team/../other", "-team", "team_1", &"t".repeat(64)] {
            assert!(plain_name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn nothing_simulated_is_applied_for_a_karpenter_that_buys() {
        use CloudKind::{Aws, Simulated};
        let refused = |said, written| {
            let refusal = refuse_simulation(said, "dev", written).err();
            refusal.map(|failure| (failure.exit, failure.message.contains("--cloud simulated")))
        };
        assert_eq!(refused(None, None), None);
        assert_eq!(refused(Some(Aws), Some("aws")), None, "nobody asks it");
        assert_eq!(refused(Some(Simulated), None), Some((Exit::Usage, true)));
        assert_eq!(refused(None, Some("simulated")), Some((Exit::Usage, false)));
        assert_eq!(refused(Some(Aws), Some("simulated")), Some((Exit::Usage, false)));
    }

    #[test]
    fn who_provisions_may_change_and_who_sells_may_not() {
        use CloudKind::{Aws, Simulated};
        let may = |former: Duty, next| former.may_become(next).is_ok();
        for kind in [Aws, Simulated] {
            assert!(may(Duty::Sync, Duty::Provision(kind)) && may(Duty::Provision(kind), Duty::Sync));
            assert!(may(Duty::Provision(kind), Duty::Provision(kind)));
        }
        assert!(!may(Duty::Provision(Aws), Duty::Provision(Simulated)));
        assert!(!may(Duty::Provision(Simulated), Duty::Provision(Aws)));
        // What is said on the command line does not change with a commit.
        let of = |said, written| Duty::of(said, "dev", (Provisioner::Provisor, written)).ok();
        assert_eq!(of(Some(Simulated), Some("aws")), Some(Duty::Provision(Simulated)));
        assert_eq!(of(None, None), None);
    }

    #[test]
    fn the_command_line_never_spends_for_an_environment_that_is_simulated() {
        use CloudKind::{Aws, Simulated};
        let seller = |said, written| seller(said, "dev", written).ok();
        assert_eq!(seller(None, Some("simulated")), Some(Simulated));
        assert_eq!(seller(None, Some("aws")), Some(Aws));
        assert_eq!(seller(Some(Simulated), Some("aws")), Some(Simulated), "to try it");
        assert_eq!(seller(Some(Aws), Some("aws")), Some(Aws));
        assert_eq!(seller(Some(Aws), None), Some(Aws));
        assert_eq!(seller(Some(Aws), Some("simulated")), None);
        assert_eq!(seller(None, None), None);
    }
}
