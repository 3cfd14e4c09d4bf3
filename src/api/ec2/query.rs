//! Selector terms as the questions that EC2 understands. Terms are ORed, so each is a question; what one term says is ANDed.

use std::collections::BTreeMap;

use super::spec::{ImageTerm, NetworkTerm};

/// One Describe call: filters by name, and for images who may own them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    pub filters: Vec<(String, Vec<String>)>,
    pub owners: Vec<String>,
}

/// Questions for subnets.
pub fn subnets(terms: &[NetworkTerm]) -> Vec<Query> {
    networks(terms, "subnet-id")
}

/// Questions for security groups.
pub fn security_groups(terms: &[NetworkTerm]) -> Vec<Query> {
    networks(terms, "group-id")
}

/// Questions for images that are selected by id, name, owner or tags.
///
/// A name without an owner is only looked for among the account's own images and Amazon's: anybody may publish an image
/// under any name.
pub fn images(terms: &[ImageTerm]) -> Vec<Query> {
    let mut queries = Vec::new();
    let ids: Vec<String> = terms.iter().filter_map(|term| term.id.clone()).collect();
    if !ids.is_empty() {
        queries.push(Query { filters: vec![available(), ("image-id".into(), ids)], owners: Vec::new() });
    }
    for term in terms {
        if term.id.is_some() || term.alias.is_some() || term.ssm_parameter.is_some() {
            continue;
        }
        let mut query = Query { filters: vec![available()], owners: Vec::new() };
        if let Some(name) = &term.name {
            query.filters.push(("name".into(), vec![name.clone()]));
        }
        query.filters.extend(tags(&term.tags));
        query.owners = match (&term.owner, &term.name) {
            (Some(owner), _) => vec![owner.clone()],
            (None, Some(_)) => vec!["self".into(), "amazon".into()],
            (None, None) => Vec::new(),
        };
        queries.push(query);
    }
    queries
}

fn available() -> (String, Vec<String>) {
    ("state".into(), vec!["available".into()])
}

/// All ids are one question.
fn networks(terms: &[NetworkTerm], id_filter: &str) -> Vec<Query> {
    let mut queries = Vec::new();
    let ids: Vec<String> = terms.iter().filter_map(|term| term.id.clone()).collect();
    if !ids.is_empty() {
        queries.push(Query { filters: vec![(id_filter.into(), ids)], owners: Vec::new() });
    }
    let names: Vec<String> = terms.iter().filter_map(|term| term.name.clone()).collect();
    if !names.is_empty() {
        queries.push(Query { filters: vec![("group-name".into(), names)], owners: Vec::new() });
    }
    queries.extend(
        terms
            .iter()
            .filter(|term| term.id.is_none() && term.name.is_none() && !term.tags.is_empty())
            .map(|term| Query { filters: tags(&term.tags).collect(), owners: Vec::new() }),
    );
    queries
}

/// `*` asks only that the key is there.
fn tags(tags: &BTreeMap<String, String>) -> impl Iterator<Item = (String, Vec<String>)> + '_ {
    tags.iter().map(|(key, value)| match value.as_str() {
        "*" => ("tag-key".to_owned(), vec![key.clone()]),
        value => (format!("tag:{key}"), vec![value.to_owned()]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(name: &str, values: &[&str]) -> (String, Vec<String>) {
        (name.to_owned(), values.iter().map(|value| (*value).to_owned()).collect())
    }

    fn image_terms(text: &str) -> Vec<ImageTerm> {
        serde_json::from_str(text).expect("the terms of the test are terms")
    }

    #[test]
    fn aws_238_tags_of_one_term_hold_together_and_terms_stand_apart() {
        let terms = image_terms(r#"[{"tags": {"a": "1", "b": "*"}}, {"tags": {"c": "3"}}]"#);
        let found = images(&terms);
        let state = filter("state", &["available"]);
        assert_eq!(found[0].filters, vec![state.clone(), filter("tag:a", &["1"]), filter("tag-key", &["b"])]);
        assert_eq!(found[1].filters, vec![state, filter("tag:c", &["3"])]);
        assert_eq!(found.len(), 2);
    }

    /// Rows: AWS-239, AWS-240, AWS-242, AWS-243
    #[test]
    fn owners_are_implied_only_by_a_name() {
        let owners = |text: &str| {
            images(&image_terms(text)).into_iter().map(|query| query.owners.join(",")).collect::<Vec<_>>()
        };
        assert_eq!(owners(r#"[{"tags": {"Name": "x"}}]"#), [""]);
        assert_eq!(owners(r#"[{"name": "x"}]"#), ["self,amazon"]);
        assert_eq!(owners(r#"[{"owner": "1"}, {"owner": "self"}]"#), ["1", "self"]);
        assert_eq!(owners(r#"[{"name": "x", "owner": "2"}]"#), ["2"]);
    }

    #[test]
    fn aws_241_all_image_ids_are_one_question() {
        let found = images(&image_terms(r#"[{"id": "ami-1"}, {"name": "n"}, {"id": "ami-2"}]"#));
        assert_eq!(
            found[0].filters,
            vec![filter("state", &["available"]), filter("image-id", &["ami-1", "ami-2"])]
        );
        assert!(found[0].owners.is_empty() && found.len() == 2);
    }

    #[test]
    fn networks_are_asked_for_by_id_name_and_tags() {
        let terms: Vec<NetworkTerm> = serde_json::from_str(
            r#"[{"id": "sg-1"}, {"name": "nodes"}, {"id": "sg-2"}, {"tags": {"k": "v"}}]"#,
        )
        .expect("the terms of the test are terms");
        let filters: Vec<_> = security_groups(&terms).into_iter().flat_map(|query| query.filters).collect();
        assert_eq!(
            filters,
            vec![
                filter("group-id", &["sg-1", "sg-2"]),
                filter("group-name", &["nodes"]),
                filter("tag:k", &["v"]),
            ]
        );
    }
}
