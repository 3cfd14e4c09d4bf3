//! Taints, tolerations, and the taints that Kubernetes itself puts on a node while it starts.

use std::fmt;
use std::sync::LazyLock;

use super::symbol::Symbol;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Effect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

impl Effect {
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "NoSchedule" => Some(Self::NoSchedule),
            "PreferNoSchedule" => Some(Self::PreferNoSchedule),
            "NoExecute" => Some(Self::NoExecute),
            _ => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Taint {
    pub key: Symbol,
    pub value: Symbol,
    pub effect: Effect,
}

impl Taint {
    pub fn new(key: &str, value: &str, effect: Effect) -> Self {
        Self { key: key.into(), value: value.into(), effect }
    }

    /// Marks a node that is about to be removed, so that nothing new lands on it.
    pub fn disrupted() -> Self {
        static DISRUPTED: LazyLock<Taint> =
            LazyLock::new(|| Taint::new("karpenter.sh/disrupted", "", Effect::NoSchedule));
        *DISRUPTED
    }

    /// On every new node from its kubelet's start until registration removes it.
    pub fn unregistered() -> Self {
        Self::new("karpenter.sh/unregistered", "", Effect::NoExecute)
    }

    /// On a node that has joined, in the place of [`Self::unregistered`], until pods may come. Kubernetes deletes a pod that it sees on a node before it
    /// sees that `NoExecute` is gone from there, so that goes first.
    pub fn unopened() -> Self {
        Self::new("karpenter.sh/unregistered", "", Effect::NoSchedule)
    }

    /// Whether it keeps pods from a node that has not been opened to them.
    pub fn keeps_closed(&self) -> bool {
        self.is_same(&Self::unregistered()) || self.is_same(&Self::unopened())
    }

    /// Two taints are the same taint when key and effect are equal; the value is not compared.
    pub fn is_same(&self, other: &Self) -> bool {
        self.key == other.key && self.effect == other.effect
    }

    /// Set by the node controller while it takes the node for one that is not ready.
    pub fn is_not_ready(&self) -> bool {
        &*self.key == "node.kubernetes.io/not-ready"
    }

    /// Set by Kubernetes while a node starts: ignored in plans until the node is initialized.
    pub fn is_ephemeral(&self) -> bool {
        match (self.key.as_str(), self.effect) {
            (_, Effect::NoSchedule | Effect::NoExecute) if self.is_not_ready() => true,
            ("node.kubernetes.io/unreachable", Effect::NoSchedule) => true,
            ("node.cloudprovider.kubernetes.io/uninitialized", Effect::NoSchedule) => true,
            _ if self.keeps_closed() => true,
            (key, _) => key.starts_with("readiness.k8s.io/"),
        }
    }
}

impl fmt::Display for Taint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let equals = if self.value.is_empty() { "" } else { "=" };
        write!(out, "{}{equals}{}:{}", self.key, self.value, self.effect.as_str())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum TolerationOperator {
    Equal,
    Exists,
    /// The taint's value is an integer greater than the toleration's.
    Gt,
    /// The taint's value is an integer less than the toleration's.
    Lt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Toleration {
    /// Empty with `Exists`: every key.
    pub key: Symbol,
    pub operator: TolerationOperator,
    pub value: Symbol,
    /// `None`: every effect.
    pub effect: Option<Effect>,
}

impl Toleration {
    /// Tolerates every taint with `effect`.
    pub fn all_of(effect: Effect) -> Self {
        Self { key: "".into(), operator: TolerationOperator::Exists, value: "".into(), effect: Some(effect) }
    }

    /// What the DaemonSet controller lets each of its pods tolerate, and those on the network of their node a seventh
    /// (`node.kubernetes.io/network-unavailable`).
    pub fn of_daemons() -> &'static [Self] {
        static ALL: LazyLock<[Toleration; 6]> = LazyLock::new(|| {
            let exists = |key: &str, effect| {
                let key = Symbol::new(&format!("node.kubernetes.io/{key}"));
                Toleration {
                    key,
                    operator: TolerationOperator::Exists,
                    value: "".into(),
                    effect: Some(effect),
                }
            };
            [
                exists("not-ready", Effect::NoExecute),
                exists("unreachable", Effect::NoExecute),
                exists("unschedulable", Effect::NoSchedule),
                exists("disk-pressure", Effect::NoSchedule),
                exists("memory-pressure", Effect::NoSchedule),
                exists("pid-pressure", Effect::NoSchedule),
            ]
        });
        &*ALL
    }

    pub fn tolerates(&self, taint: &Taint) -> bool {
        if self.effect.is_some_and(|effect| effect != taint.effect)
            || (!self.key.is_empty() && self.key != taint.key)
        {
            return false;
        }
        let numbers = || Some((taint.value.parse::<i64>().ok()?, self.value.parse::<i64>().ok()?));
        match self.operator {
            TolerationOperator::Exists => true,
            _ if self.key.is_empty() => false,
            TolerationOperator::Equal => self.value == taint.value,
            TolerationOperator::Gt => numbers().is_some_and(|(taint, bound)| taint > bound),
            TolerationOperator::Lt => numbers().is_some_and(|(taint, bound)| taint < bound),
        }
    }
}

/// Adds those of `more` that are not the same as one that is there.
pub fn merge_taints(taints: &mut Vec<Taint>, more: impl IntoIterator<Item = Taint>) {
    for taint in more {
        if !taints.iter().any(|present| present.is_same(&taint)) {
            taints.push(taint);
        }
    }
}

/// The first of `taints` that nothing in `tolerations` tolerates. `PreferNoSchedule` counts like the others.
pub fn first_untolerated<'a>(taints: &'a [Taint], tolerations: &[Toleration]) -> Option<&'a Taint> {
    taints.iter().find(|taint| !tolerations.iter().any(|toleration| toleration.tolerates(taint)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toleration(
        key: &str,
        operator: TolerationOperator,
        value: &str,
        effect: Option<Effect>,
    ) -> Toleration {
        Toleration { key: key.into(), operator, value: value.into(), effect }
    }

    #[test]
    fn tolerations_match_as_kubernetes_matches() {
        use TolerationOperator::*;
        let gpu = Taint::new("gpu", "true", Effect::NoSchedule);
        assert!(toleration("gpu", Equal, "true", None).tolerates(&gpu));
        assert!(!toleration("gpu", Equal, "false", None).tolerates(&gpu));
        assert!(toleration("", Exists, "", None).tolerates(&gpu));
        assert!(!toleration("gpu", Exists, "", Some(Effect::NoExecute)).tolerates(&gpu));
        let tier = Taint::new("tier", "5", Effect::NoSchedule);
        assert!(
            toleration("tier", Gt, "4", None).tolerates(&tier)
                && !toleration("tier", Lt, "4", None).tolerates(&tier)
        );
        assert!(!toleration("", Equal, "", None).tolerates(&Taint::new("x", "", Effect::NoSchedule)));
    }

    #[test]
    fn sch_927_key_and_effect_make_a_taint_the_same() {
        let there = Taint::new("team", "red", Effect::NoSchedule);
        let other = Taint::new("team", "blue", Effect::NoExecute);
        let mut taints = vec![there];
        merge_taints(&mut taints, [Taint::new("team", "blue", Effect::NoSchedule), other, other]);
        assert_eq!(taints, [there, other]);
    }

    #[test]
    fn taints_of_a_starting_node_are_known() {
        assert!(Taint::new("node.kubernetes.io/not-ready", "", Effect::NoExecute).is_ephemeral());
        assert!(Taint::new("readiness.k8s.io/anything", "x", Effect::PreferNoSchedule).is_ephemeral());
        assert!(!Taint::new("node.kubernetes.io/unreachable", "", Effect::NoExecute).is_ephemeral());
        assert!(!Taint::disrupted().is_ephemeral());
    }
}
