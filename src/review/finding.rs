//! What a review has to say, one thing after the other: what programs that collect findings take in.
//!
//! All forms for such programs are made from this one list, so that they cannot differ. An error is what the comment shows
//! with ❌, a warning what it shows with ⚠️; whether the review passes is for the verdict to say.

use sha2::{Digest, Sha256};

use super::report::{EnvironmentReview, OriginReview, PolicyReview, Remark, Review, Verdict};
use crate::gitops::fleet::FLEET_FILE;
use crate::model::count::counted;
use crate::model::visible::visible_line;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Error,
    Warning,
}

/// One thing that a review has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// A name that never changes its meaning: `guardrail/ID`, `gate/NAME`, the code of a mistake.
    pub rule: String,
    pub level: Level,
    /// None: it is about the proposal as a whole.
    pub environment: Option<String>,
    /// One line, every letter of it to be seen.
    pub message: String,
    /// What it is about, from the root of the repository.
    pub origin: Option<OriginReview>,
    /// Where the rule stands that it breaks.
    pub broken_rule: Option<OriginReview>,
    /// Stays the same while the finding does, whatever line it moves to; no two findings of a review share one.
    pub fingerprint: String,
}

/// All that a review has to say.
#[derive(Clone, Debug)]
pub struct Findings {
    /// One sentence that says all.
    pub headline: String,
    /// None: nothing was reviewed.
    pub verdict: Option<Verdict>,
    /// Tells this review from others of the same proposal.
    pub set: String,
    /// The file of the fleet itself, from the root of the repository.
    pub fleet_file: String,
    /// Those that were reviewed, by name.
    pub environments: Vec<String>,
    /// Gates that were asked for and are open: what was found.
    pub passed: Vec<(String, String)>,
    pub findings: Vec<Finding>,
}

impl Findings {
    /// `root` is the directory of the fleet inside the repository, if it is not the repository itself.
    pub fn of(review: &Review, set: &str, root: Option<&str>) -> Self {
        let mut list = List { root: root_of(root), findings: Vec::new() };
        let closed = review.gates.iter().filter(|gate| !gate.passed);
        for gate in closed {
            list.add(format!("gate/{}", gate.gate), Level::Error, None, &gate.message, None);
        }
        review.environments.iter().for_each(|environment| list.environment(environment));
        for diagnostic in &review.diagnostics {
            list.remark(diagnostic, Level::Warning, None);
        }
        let open = review.gates.iter().filter(|gate| gate.passed);
        Self {
            headline: visible_line(&review.headline).into_owned(),
            verdict: Some(review.verdict),
            set: set.to_owned(),
            fleet_file: format!("{}{FLEET_FILE}", root_of(root)),
            environments: review
                .environments
                .iter()
                .map(|one| visible_line(&one.name).into_owned())
                .collect(),
            passed: open.map(|gate| (gate.gate.clone(), visible_line(&gate.message).into_owned())).collect(),
            findings: list.told_apart(),
        }
    }

    /// Of a proposal that could not be reviewed.
    pub fn refusal(
        message: &str,
        mistakes: impl Iterator<Item = (Remark, Level)>,
        set: &str,
        root: Option<&str>,
    ) -> Self {
        let mut list = List { root: root_of(root), findings: Vec::new() };
        mistakes.for_each(|(mistake, level)| list.remark(&mistake, level, None));
        if list.findings.is_empty() {
            list.add("review/refused".into(), Level::Error, None, message, None);
        }
        let headline = if message.is_empty() { "the proposal is not valid" } else { message };
        Self {
            headline: visible_line(headline).into_owned(),
            verdict: None,
            set: set.to_owned(),
            fleet_file: format!("{}{FLEET_FILE}", root_of(root)),
            environments: Vec::new(),
            passed: Vec::new(),
            findings: list.told_apart(),
        }
    }
}

/// As the beginning of paths: `` or `fleets/shop/`.
fn root_of(root: Option<&str>) -> String {
    match root.map(|root| root.trim_matches('/')) {
        None | Some("" | ".") => String::new(),
        Some(root) => format!("{root}/"),
    }
}

struct List {
    root: String,
    findings: Vec<Finding>,
}

impl List {
    fn environment(&mut self, environment: &EnvironmentReview) {
        let name = Some(environment.name.as_str());
        // What numbers say is about the change that they come from.
        let change = environment.objects.iter().find_map(|object| {
            let field = object.fields.iter().find_map(|field| field.origin.as_ref());
            field.or(object.origin.as_ref())
        });
        for policy in &environment.policies {
            self.policy(policy, name);
        }
        for pod in environment.pods.iter().flat_map(|pods| &pods.new_unschedulable) {
            let what = match (pod.lost_only_pool, pod.still_runs) {
                (true, true) => "would find no pool again if restarted",
                (true, false) => "has no pool any more",
                (false, true) => "would find no room again if restarted",
                (false, false) => "has no room",
            };
            let reasons: Vec<String> = pod
                .reasons
                .iter()
                .map(|reason| match &reason.pool {
                    Some(pool) => format!("{pool}: {}", reason.message),
                    None => reason.message.clone(),
                })
                .collect();
            let reasons =
                if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
            let message = format!("pod {} {what}{reasons}", pod.pod);
            self.add("pod/without-place".into(), Level::Error, name, &message, change);
        }
        for blocker in environment.roll.iter().flat_map(|roll| &roll.blockers) {
            let message = format!("nodes that should be replaced stay: {blocker}");
            self.add("roll/blocked".into(), Level::Warning, name, &message, change);
        }
        for limit in environment.limits.iter().flatten() {
            let what = if limit.is_exceeded { "is exceeded" } else { "leaves pods waiting" };
            let waiting = match limit.waiting_pods {
                0 => String::new(),
                count => format!(", {} waiting", counted(count, "pod")),
            };
            let message = format!(
                "limit {} of pool {} {what}: {} of {}{waiting}",
                limit.resource, limit.pool, limit.used, limit.limit
            );
            self.add("pool/limit".into(), Level::Warning, name, &message, change);
        }
        for finding in &environment.findings {
            self.remark(finding, Level::Warning, name);
        }
    }

    fn policy(&mut self, policy: &PolicyReview, environment: Option<&str>) {
        let level = if policy.severity == "deny" { Level::Error } else { Level::Warning };
        let old = if policy.is_new { "" } else { " (the base breaks it too)" };
        let waived = policy.waived.as_ref().map(|waived| {
            format!(" (waived until {} by {}: {})", waived.until, waived.approvers.join(", "), waived.reason)
        });
        let message = format!("{}{old}{}", policy.message, waived.unwrap_or_default());
        self.add(format!("guardrail/{}", policy.id), level, environment, &message, policy.origin.as_ref());
        if let Some(added) = self.findings.last_mut() {
            added.broken_rule = policy.rule.as_ref().and_then(|rule| in_repository(&self.root, rule));
        }
    }

    fn remark(&mut self, remark: &Remark, level: Level, environment: Option<&str>) {
        self.add(remark.code.clone(), level, environment, &remark.message, remark.origin.as_ref());
    }

    fn add(
        &mut self,
        rule: String,
        level: Level,
        environment: Option<&str>,
        message: &str,
        origin: Option<&OriginReview>,
    ) {
        self.findings.push(Finding {
            rule: visible_line(&rule).into_owned(),
            level,
            environment: environment.map(|name| visible_line(name).into_owned()),
            message: visible_line(message).into_owned(),
            origin: origin.and_then(|origin| in_repository(&self.root, origin)),
            broken_rule: None,
            fingerprint: String::new(),
        });
    }

    /// Gives every finding a fingerprint; of two that say the same of the same file, the second one has another.
    fn told_apart(mut self) -> Vec<Finding> {
        let mut known = std::collections::BTreeMap::<String, usize>::new();
        for finding in &mut self.findings {
            let mut hash = Sha256::new();
            let file = finding.origin.as_ref().map_or("", |origin| &origin.file);
            let environment = finding.environment.as_deref().unwrap_or_default();
            for part in [&finding.rule, environment, &finding.message, file] {
                hash.update(part.as_bytes());
                hash.update([0]);
            }
            let digits: String = hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
            let times = known.entry(digits.clone()).or_default();
            *times += 1;
            finding.fingerprint = match *times {
                1 => digits,
                times => format!("{digits}-{times}"),
            };
        }
        self.findings
    }
}

/// A place in a file of the repository; what is built in has none.
fn in_repository(root: &str, origin: &OriginReview) -> Option<OriginReview> {
    let is_file = !origin.file.is_empty() && !origin.file.starts_with("built-in:");
    is_file.then(|| OriginReview { file: format!("{root}{}", origin.file), ..origin.clone() })
}
