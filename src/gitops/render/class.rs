//! A class into its EC2NodeClass: the system that its pools need, its user data, its template.

use super::sealed::Subject;
use super::{CLASS_TEMPLATE, Run};
use crate::gitops::context::{self, ClassInput, OWN_CLASS};
use crate::gitops::diagnostic::{Diagnostic, Place};
use crate::gitops::fleet::refused;
use crate::gitops::lock::resolve_images;
use crate::gitops::read::text_of;
use crate::gitops::rendered::{self, Draft, Roots};
use crate::gitops::tree::{Entry, Node, Tree};
use crate::model::near::nearest;

impl<'a> Run<'a> {
    pub(super) fn class(&mut self, name: &str, entry: Option<&Entry>) {
        // A class that nobody wrote belongs to the pool that needs it.
        let from_pool =
            self.presets.get(name).and_then(|wanted| wanted.first()).map(|(_, place)| place.clone());
        let key = match entry {
            Some(entry) => entry.key.clone(),
            None => from_pool.unwrap_or_else(|| self.resolved.tree.place.clone()),
        };
        let defaults = || self.resolved.tree.at(["defaults", "class"]).cloned();
        let unwritten =
            || Node { place: key.clone(), ..defaults().unwrap_or_else(|| Node::map(key.clone())) };
        let node = entry.map_or_else(unwritten, |entry| entry.node.clone());
        if node.get("external").is_some_and(|mark| mark.value == Tree::Bool(true)) {
            return;
        }
        context::check_class(&node, &mut self.found);
        let node = resolve_images(&node, &self.surroundings.book, &mut self.found);
        let Some(preset) = self.preset(name, &node, &key) else { return };
        if let (Some(role), Some(profile)) = (node.entry("role"), node.entry("instance-profile")) {
            let message = "`role` and `instance-profile` are both set";
            self.found.push(
                Diagnostic::error("PRV1611", profile.node.place.clone(), message)
                    .also("the role", role.node.place.clone())
                    .help(
                        "keep one of the two; one that comes from below goes with `{ \"$remove\" = true }`",
                    ),
            );
            return;
        }
        let Some(mut drafts) = self.class_drafts(name, &node, &preset, &key) else { return };
        self.check_sealed(
            &Subject { table: "classes", name, node: &node, key: &key },
            &drafts,
            |run, node| run.class_drafts(name, node, &preset, &key),
        );
        self.override_one(&mut drafts, "EC2NodeClass", name, &node, &format!("class `{name}`"), &key);
        self.add(drafts, &format!("classes.{name}"));
    }

    /// What the template makes of a class.
    fn class_drafts(&mut self, name: &str, node: &Node, preset: &str, key: &Place) -> Option<Vec<Draft>> {
        let variables = self.variables(node);
        let user_data = self.user_data(node);
        let input = ClassInput { name, node, preset, user_data };
        let context = self.surroundings.for_class(&input, &variables);
        let roots = Roots {
            roots: vec![("class", node), ("vars", &variables), ("cluster", self.cluster_node())],
            entry: key.clone(),
            subject: format!("class `{name}`"),
        };
        let mut drafts = self.rendered(CLASS_TEMPLATE, context, &roots, key);
        drafts.iter_mut().for_each(|draft| rendered::trace_class(draft, node));
        Some(drafts)
    }

    fn cluster_node(&self) -> &'a Node {
        self.resolved.tree.get("cluster").unwrap_or(&self.resolved.tree)
    }

    fn preset(&mut self, name: &str, node: &Node, key: &Place) -> Option<String> {
        if let Some(preset) = node.get("preset").and_then(Node::as_text) {
            return Some(preset.to_string());
        }
        let wanted = self.presets.get(name).cloned().unwrap_or_default();
        let Some((first, first_place)) = wanted.first().cloned() else {
            return Some(if OWN_CLASS.contains(&name) { name.to_owned() } else { "al2023".to_owned() });
        };
        if let Some((other, place)) = wanted.iter().find(|(preset, _)| *preset != first) {
            let message =
                format!("class `{name}` is used by pools that need different systems: {first} and {other}");
            self.found.push(
                Diagnostic::error("PRV1610", key.clone(), message)
                    .also(format!("this pool needs {first}"), first_place)
                    .also(format!("this pool needs {other}"), place.clone())
                    .help("give one of the pools a class of its own, or set `preset`"),
            );
            return None;
        }
        Some(first.to_owned())
    }

    fn user_data(&mut self, node: &Node) -> Option<String> {
        let file = node.get("user-data-file")?;
        let path = file.as_text()?;
        if node.get("user-data").is_some() {
            let message = "`user-data` and `user-data-file` are both set";
            self.found
                .push(Diagnostic::error("PRV1611", file.place.clone(), message).help("keep one of the two"));
            return None;
        }
        if let Some((at, refusal)) = self.fleet.repository.refusal_of(path) {
            self.found.push(refused(&at.into(), refusal).also("used here", file.place.clone()));
            return None;
        }
        let Some(bytes) = self.fleet.repository.files.get(path) else {
            let message = format!("there is no file `{path}` {}", self.fleet.repository.place());
            let names = self.fleet.repository.files.keys().map(|name| &**name);
            let help = match nearest(path, names) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "give the path from the root of the repository, without a leading slash".to_owned(),
            };
            self.found.push(Diagnostic::error("PRV1612", file.place.clone(), message).help(help));
            return None;
        };
        let source = text_of(path, bytes, &mut self.found)?;
        crate::gitops::credential::check_text(&source, &mut self.found);
        Some(source.text.to_string())
    }
}
