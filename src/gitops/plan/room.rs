//! Room is kept by the measure of a PodTemplate: of ours, never of one that somebody else put under its name.

use serde_json::{Value, json};

use super::{ChangeAction, Drafting, Verdict, VerdictCode};
use crate::gitops::desired::{DesiredObject, ObjectRef};
use crate::gitops::live::LiveObject;
use crate::gitops::tracking::Ownership;

impl Drafting<'_> {
    /// Holds the buffers whose PodTemplate the commit wants and does not get, and lets those keep no room that stand already.
    pub(super) fn hold_rooms(&mut self) {
        let foreign = self.foreign_templates();
        if foreign.is_empty() {
            return;
        }
        let input = self.input;
        for (object, desired) in
            input.desired.objects.iter().filter(|(one, _)| &*one.kind == "CapacityBuffer")
        {
            let measure = desired.manifest.pointer("/spec/podTemplateRef/name").and_then(Value::as_str);
            let held = foreign.iter().find(|(template, _)| {
                template.namespace == object.namespace && Some(&*template.name) == measure
            });
            let Some((template, why)) = held else { continue };
            if !self.empty(object, desired, template, why) {
                self.refuse(object, template, why);
            }
        }
    }

    /// Lets a standing buffer keep no room; false where there is none of ours, or it keeps none.
    fn empty(
        &mut self,
        object: &ObjectRef,
        desired: &DesiredObject,
        template: &ObjectRef,
        why: &str,
    ) -> bool {
        let Some(live) = self.input.live.objects.get(object) else { return false };
        let is_left_alone = self.skipped.iter().any(|skipped| skipped.object == *object);
        let is_empty = live.manifest.pointer("/spec/replicas") == Some(&json!(0));
        if is_left_alone || is_empty || live.is_terminating() || !self.is_ours(object, live) {
            return false;
        }
        let mut emptied = desired.clone();
        emptied.manifest["spec"]["replicas"] = json!(0);
        let mut change = self.draft(object, &emptied, Some(live), ChangeAction::Update);
        if change.fields.is_empty() {
            return false;
        }
        change.reasons.push(format!("keeps no room as long as {template} is not applied: {why}"));
        self.settled.retain(|settled| settled.object != *object);
        self.writes.retain(|write| write.object != *object);
        self.writes.push(change);
        true
    }

    fn refuse(&mut self, object: &ObjectRef, template: &ObjectRef, why: &str) {
        let mut writes = self.writes.iter_mut();
        let planned = writes.find(|change| change.object == *object && change.verdict == Verdict::Proceed);
        if let Some(change) = planned {
            change.verdict = Verdict::refused(
                VerdictCode::SharedResource,
                format!("it would keep room for {template}, which is not applied: {why}"),
                "choose another name, or let the PodTemplate be taken over",
            );
        }
    }

    /// PodTemplates that the commit wants and that are somebody else's, or are not applied for another reason; and why.
    fn foreign_templates(&self) -> Vec<(ObjectRef, String)> {
        let is_template = |object: &ObjectRef| &*object.kind == "PodTemplate";
        let held = self
            .writes
            .iter()
            .filter(|change| is_template(&change.object) && change.verdict != Verdict::Proceed)
            .map(|change| (change.object.clone(), change.verdict.message().to_owned()));
        let is_ours = |object: &ObjectRef| {
            self.input.live.objects.get(object).is_some_and(|live| self.is_ours(object, live))
        };
        // Of one that is ours, whoever paused it says how large it is.
        let left_alone = self
            .skipped
            .iter()
            .filter(|skipped| is_template(&skipped.object) && !is_ours(&skipped.object))
            .map(|skipped| (skipped.object.clone(), skipped.reason.clone()));
        held.chain(left_alone).collect()
    }

    fn is_ours(&self, object: &ObjectRef, live: &LiveObject) -> bool {
        matches!(self.claim(object, live), Ownership::Ours)
    }
}
