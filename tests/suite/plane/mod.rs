//! A real Kubernetes control plane on loopback: etcd, kube-apiserver and, where pods must be bound, kube-scheduler and
//! kube-controller-manager. Kubelets there are none: nodes are objects that a test or Provisor writes.
//!
//! `Plane::start` takes about four seconds and 650 MiB (half of that without controllers), so tests that only need a
//! namespace share one. RBAC is on and every user shows a certificate.

mod api;
mod assets;
pub(crate) mod bound;
mod certificates;
mod home;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::sync::{Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub(crate) use api::{Answer, Api};
pub(crate) use assets::made_by;
use certificates::{Authority, Identity};
use home::Home;

/// How long a server may take to answer on a machine that is also compiling.
const START_PATIENCE: Duration = Duration::from_secs(120);
/// A port is free when it is chosen and may be taken when it is used.
const STARTS_MAX: u32 = 6;
/// Planes of their own that tests run at once; the others wait their turn.
const PLANES_MAX: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// Objects are stored, checked and served; nothing acts on them, and namespaces have no ServiceAccount.
    Objects,
    /// The same, and pods are bound to nodes. Nobody changes nodes: they are as they were made.
    Scheduled,
    /// Deployments make pods, pods are bound to nodes, garbage is collected.
    Everything,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Server {
    Etcd,
    Api,
    Controllers,
    Scheduler,
}

impl Server {
    fn program(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Api => "kube-apiserver",
            Self::Controllers => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
        }
    }
}

pub(crate) struct Plane {
    servers: Mutex<BTreeMap<Server, Child>>,
    size: Size,
    ports: Ports,
    authority: Authority,
    /// With the rights of `system:masters`.
    pub(crate) api: Api,
    kubeconfig: PathBuf,
    home: Home,
    turn: Mutex<Option<Turn>>,
}

#[derive(Clone, Copy)]
struct Ports {
    etcd: u16,
    etcd_peer: u16,
    api: u16,
}

impl Plane {
    /// A plane of the test's own: for objects without a namespace, for servers that fail, for whole runs.
    pub(crate) fn start(size: Size) -> Self {
        Self::start_in(size, Some(Turn::take()))
    }

    /// The plane of all tests of this process that need no more than a namespace. It ends with the process.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Plane> = OnceLock::new();
        SHARED.get_or_init(|| Self::start_in(Size::Everything, None))
    }

    fn start_in(size: Size, mut turn: Option<Turn>) -> Self {
        let mut said = String::new();
        for _ in 0..STARTS_MAX {
            match Self::try_start(size, &mut turn) {
                Ok(plane) => return plane,
                Err(reason) if reason.contains("address already in use") => said = reason,
                Err(reason) => panic!("the control plane does not start: {reason}"),
            }
        }
        panic!("the control plane found no free port in {STARTS_MAX} tries: {said}");
    }

    fn try_start(size: Size, turn: &mut Option<Turn>) -> Result<Self, String> {
        let home = Home::new();
        let ports = Ports::free();
        let authority = Authority::new();
        home.write("authority.crt", &authority.pem);
        let Identity { certificate, key } = authority.server();
        home.write("server.crt", &certificate);
        home.write("server.key", &key);
        certificates::write_token_keys(home.path());
        for user in ["system:kube-controller-manager", "system:kube-scheduler"] {
            write_kubeconfig(&home, ports, user, &authority.user(user, None));
        }
        let admin = authority.user("admin", Some("system:masters"));
        let kubeconfig = write_kubeconfig(&home, ports, "admin", &admin);
        home.write("scheduler.yaml", &scheduler_settings(home.path()));
        home.write("audit.yaml", &audit_policy());
        let plane = Self {
            servers: Mutex::default(),
            size,
            ports,
            authority,
            api: Api::of(&kubeconfig),
            kubeconfig,
            home,
            turn: Mutex::default(),
        };
        plane.run(Server::Etcd);
        plane.run(Server::Api);
        plane.wait_until_ready()?;
        if size == Size::Everything {
            plane.run(Server::Controllers);
        }
        if size != Size::Objects {
            plane.run(Server::Scheduler);
        }
        if size == Size::Everything {
            plane.wait_for_account("default")?;
        }
        *plane.turn.lock().expect("nobody else has it") = turn.take();
        Ok(plane)
    }

    /// The administrator's.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A kubeconfig of a user who may do what RBAC grants to the name, and nothing else.
    pub(crate) fn user(&self, name: &str) -> PathBuf {
        write_kubeconfig(&self.home, self.ports, name, &self.authority.user(name, None))
    }

    /// A kubeconfig of a ServiceAccount, with a token such as a pod of it would hold.
    pub(crate) fn service_account(&self, namespace: &str, name: &str) -> PathBuf {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {},
            "spec": {"expirationSeconds": 3600},
        });
        let issued = self.api.post(&path, &request).expect("a token");
        let user = json!({"token": issued["status"]["token"]});
        let file = kubeconfig(self.ports, &self.home.path().join("authority.crt"), &user);
        self.home.write(&format!("account-{namespace}-{name}.kubeconfig"), &file.to_string())
    }

    /// What [`AUDITED`] asked of this API server, as its audit log has it: whole requests, in the order of their answers.
    pub(crate) fn audit(&self) -> Vec<Value> {
        self.audit_after(&mut 0)
    }

    /// The same, of what came after the first `read` bytes, which become more.
    pub(crate) fn audit_after(&self, read: &mut u64) -> Vec<Value> {
        let mut log = Vec::new();
        if let Ok(mut file) = File::open(self.home.path().join("audit.log")) {
            file.seek(SeekFrom::Start(*read)).and_then(|_| file.read_to_end(&mut log)).expect("it is a file");
        }
        // The last line may not be there completely yet.
        let whole = log.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        *read += whole as u64;
        // A server that was killed may have left half a line.
        log[..whole]
            .split(|byte| *byte == b'\n')
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect()
    }

    /// A new namespace whose name begins so, ready for pods.
    pub(crate) fn namespace(&self, begin: &str) -> String {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": format!("{begin}-")}});
        let made = self.api.post("/api/v1/namespaces", &object).expect("a namespace");
        let name = made["metadata"]["name"].as_str().expect("it has a name").to_owned();
        if self.size == Size::Everything {
            self.wait_for_account(&name).expect("the namespace gets its ServiceAccount");
        }
        name
    }

    /// Installs our CustomResourceDefinitions and waits until their kinds are served.
    pub(crate) fn install_kinds(&self) {
        for object in crate::deploy::manifests("deploy/crds") {
            let path = path_of(&object);
            self.api.apply(&path, &object).expect("the definition is accepted");
            self.api.wait(&path, START_PATIENCE, |answer| has_condition(&answer.body, "Established"));
        }
    }

    /// `kubectl` as the administrator.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Output {
        let mut command = bound::command(assets::folder().join("kubectl"));
        command.arg("--kubeconfig").arg(self.kubeconfig()).args(arguments).env("HOME", self.home.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        bound::spawn(command).and_then(Child::wait_with_output).expect("kubectl runs")
    }

    /// Ends a server at once, as a crash would.
    pub(crate) fn kill(&self, server: Server) {
        let child = self.servers.lock().expect("nobody panics here").remove(&server);
        let mut child = child.unwrap_or_else(|| panic!("{server:?} runs"));
        child.kill().and_then(|()| child.wait()).expect("it was ours");
    }

    /// Starts a killed server where it was, and waits until the API answers.
    pub(crate) fn revive(&self, server: Server) {
        self.run(server);
        self.wait_until_ready().expect("the API answers again");
    }

    /// Has etcd forget all that was before now, as it does by itself every few minutes. Whoever watched since earlier has to list
    /// anew, and everybody did: even who was told of the last change of all is one behind, as something else is written first.
    pub(crate) fn forget_history(&self) {
        let now =
            self.ask_etcd("put", &json!({ "key": "YQ==", "value": "YQ==" }))["header"]["revision"].clone();
        self.ask_etcd("compaction", &json!({ "revision": now, "physical": true }));
    }

    fn ask_etcd(&self, what: &str, question: &Value) -> Value {
        let (port, body) = (self.ports.etcd, question.to_string());
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("etcd listens");
        let head = format!("POST /v3/kv/{what} HTTP/1.0\r\nHost: etcd\r\nContent-Type: application/json\r\n");
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).expect("it is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
        assert!(head.contains(" 200 "), "{what}: {answer}");
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }

    fn run(&self, server: Server) {
        let program = assets::folder().join(server.program());
        let mut command = bound::command(program);
        command.current_dir(self.home.path()).args(self.arguments(server)).stdin(Stdio::null());
        // They live for a minute: memory that is looked through less often leaves the processors to others.
        command.envs([("GOGC", "400"), ("GOMEMLIMIT", "500MiB")]);
        let log = self.home.path().join(server.program());
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log).expect("a log");
        command.stderr(log.try_clone().expect("a log")).stdout(log);
        let child = bound::spawn(command).expect("setpriv, of Debian's util-linux, starts it");
        self.servers.lock().expect("nobody panics here").insert(server, child);
    }

    fn arguments(&self, server: Server) -> Vec<String> {
        let Ports { etcd, etcd_peer, api } = self.ports;
        let text = match server {
            Server::Etcd => format!(
                "--data-dir=etcd.data --unsafe-no-fsync --log-level=warn \
                 --listen-client-urls=http://127.0.0.1:{etcd} --advertise-client-urls=http://127.0.0.1:{etcd} \
                 --listen-peer-urls=http://127.0.0.1:{etcd_peer} \
                 --initial-advertise-peer-urls=http://127.0.0.1:{etcd_peer} \
                 --initial-cluster=default=http://127.0.0.1:{etcd_peer}"
            ),
            Server::Api => format!(
                "--etcd-servers=http://127.0.0.1:{etcd} --secure-port={api} --bind-address=127.0.0.1 \
                 --advertise-address=127.0.0.1 --endpoint-reconciler-type=none --allow-privileged \
                 --tls-cert-file=server.crt --tls-private-key-file=server.key --cert-dir=. \
                 --client-ca-file=authority.crt --authorization-mode=Node,RBAC \
                 --service-cluster-ip-range=10.0.0.0/16 \
                 --audit-policy-file=audit.yaml --audit-log-path=audit.log \
                 --service-account-issuer=https://kubernetes.default.svc \
                 --service-account-key-file=tokens.pub --service-account-signing-key-file=tokens.key{}",
                match self.size {
                    // Nobody would make the account that it asks for.
                    Size::Objects => " --disable-admission-plugins=ServiceAccount",
                    // Nor would anybody take the taint off again that says that a new node is not ready.
                    Size::Scheduled => " --disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
                    Size::Everything => "",
                }
            ),
            Server::Controllers => format!(
                "{} --leader-elect=false --secure-port=0 --use-service-account-credentials \
                 --service-account-private-key-file=tokens.key --root-ca-file=authority.crt \
                 --kube-api-qps=500 --kube-api-burst=1000",
                ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"]
                    .map(|flag| format!("--{flag}=system:kube-controller-manager.kubeconfig"))
                    .join(" "),
            ),
            Server::Scheduler => "--config=scheduler.yaml --secure-port=0".to_owned(),
        };
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// Waits for `/readyz`; before it the roles that the controllers need may not exist, and they would give up.
    fn wait_until_ready(&self) -> Result<(), String> {
        self.wait_for("/readyz", |answer| answer.is_success())
    }

    /// Pods of a namespace can be made once its default ServiceAccount exists.
    fn wait_for_account(&self, namespace: &str) -> Result<(), String> {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
        self.wait_for(&path, Answer::is_success)
    }

    fn wait_for(&self, path: &str, is_right: impl Fn(&Answer) -> bool) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let answer = self.api.try_send("GET", path, "application/json", Vec::new());
            if answer.as_ref().is_some_and(&is_right) {
                return Ok(());
            }
            for (server, child) in self.servers.lock().expect("nobody panics here").iter_mut() {
                if let Ok(Some(status)) = child.try_wait() {
                    return Err(format!("{server:?} ended ({status}): {}", self.last_words(*server)));
                }
            }
            if start.elapsed() > START_PATIENCE {
                return Err(format!("{path} is not answered after {START_PATIENCE:?}: {answer:?}"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn last_words(&self, server: Server) -> String {
        let log = std::fs::read_to_string(self.home.path().join(server.program())).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        for child in self.servers.lock().expect("nobody panics here").values_mut() {
            child.kill().ok();
        }
        for child in self.servers.lock().expect("nobody panics here").values_mut() {
            child.wait().ok();
        }
    }
}

impl Ports {
    fn free() -> Self {
        // All are held until all are chosen, so that they differ.
        let held = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port on loopback"));
        let [etcd, etcd_peer, api] = held.map(|held| held.local_addr().expect("it is bound").port());
        Self { etcd, etcd_peer, api }
    }
}

/// The right to run one more plane.
struct Turn;

static RUNNING: (Mutex<u32>, Condvar) = (Mutex::new(0), Condvar::new());

impl Turn {
    fn take() -> Self {
        let (count, ended) = &RUNNING;
        let count = count.lock().expect("nobody panics here");
        let mut count = ended.wait_while(count, |count| *count >= PLANES_MAX).expect("nobody panics here");
        *count += 1;
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let (count, ended) = &RUNNING;
        *count.lock().expect("nobody panics here") -= 1;
        ended.notify_one();
    }
}

fn kubeconfig(ports: Ports, authority: &Path, user: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {
            "server": format!("https://127.0.0.1:{}", ports.api),
            "certificate-authority": authority,
        }}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    })
}

fn write_kubeconfig(home: &Home, ports: Ports, user: &str, identity: &Identity) -> PathBuf {
    let certificate = home.write(&format!("{user}.crt"), &identity.certificate);
    let key = home.write(&format!("{user}.key"), &identity.key);
    let shown = json!({"client-certificate": certificate, "client-key": key});
    let file = kubeconfig(ports, &home.path().join("authority.crt"), &shown);
    home.write(&format!("{user}.kubeconfig"), &file.to_string())
}

/// The users whose requests are recorded: Provisor, and another replica of it.
pub(crate) const AUDITED: [&str; 2] = ["provisor", "provisor-standby"];

fn audit_policy() -> String {
    let asked = json!([{ "group": "", "resources": ["pods", "pods/status", "pods/eviction"] }]);
    let made = json!([{ "group": "karpenter.sh", "resources": ["nodeclaims", "nodeclaims/status"] }]);
    json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
        "rules": [
            { "level": "Request", "users": AUDITED, "verbs": ["create", "patch", "delete"], "resources": asked },
            { "level": "RequestResponse", "users": AUDITED, "verbs": ["create", "patch"], "resources": made },
            { "level": "Metadata", "users": AUDITED },
            { "level": "None" },
        ],
    })
    .to_string()
}

/// The scheduler's own limit of requests would be the slowest part of a test of a thousand pods.
fn scheduler_settings(home: &Path) -> String {
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "clientConnection": {
            "kubeconfig": home.join("system:kube-scheduler.kubeconfig"), "qps": 1000, "burst": 2000,
        },
        "leaderElection": {"leaderElect": false},
    })
    .to_string()
}

/// Where the API server keeps an object.
pub(crate) fn path_of(object: &Value) -> String {
    let name = object["metadata"]["name"].as_str().expect("an object has a name");
    format!("{}/{name}", collection_of(object))
}

/// Where the API server keeps the objects of this one's kind and namespace.
pub(crate) fn collection_of(object: &Value) -> String {
    let version = object["apiVersion"].as_str().expect("an object has a version");
    let kind = object["kind"].as_str().expect("an object has a kind").to_lowercase();
    let root = if version.contains('/') { "/apis" } else { "/api" };
    let plural = match kind.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u'])) {
        Some(stem) => format!("{stem}ies"),
        None if kind.ends_with('s') => format!("{kind}es"),
        None => format!("{kind}s"),
    };
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{root}/{version}/namespaces/{namespace}/{plural}"),
        None => format!("{root}/{version}/{plural}"),
    }
}

/// Whether the object's status says so.
pub(crate) fn has_condition(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == kind && condition["status"] == "True")
}
