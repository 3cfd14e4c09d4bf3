//! What one catalogue has that an earlier one had not: prices change all day, the thousand types around them do not.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{CapacitySettings, Catalog, PriceSource, TypeFacts, memory};
use crate::model::name::TypeName;
use crate::model::requirement::Requirements;

/// Leads from one catalogue to the next, or to the first.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CatalogChange {
    region: Arc<str>,
    prices: PriceSource,
    notes: Arc<[String]>,
    settings: CapacitySettings,
    /// `types` are all there are; else they take the place of those of the same name.
    is_whole: bool,
    types: Vec<(TypeFacts, Requirements)>,
}

/// Why a change leads to no catalogue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    #[error("it changes a catalogue, and there is none before it")]
    NothingBefore,
    #[error("it changes the instance type {0}, which the catalogue before it does not have")]
    Unknown(TypeName),
    #[error("its instance types are more than a catalogue can hold ({})", u16::MAX)]
    TooMany,
    #[error("it has the instance type {0} twice, or not in order")]
    Disorder(TypeName),
}

impl Catalog {
    /// What leads from `former` to this one; without `former` all of it.
    pub fn change_since(&self, former: Option<&Self>) -> CatalogChange {
        let has_same_types = |former: &&Self| {
            former.facts.len() == self.facts.len()
                && former.facts.iter().zip(self.facts.iter()).all(|(former, new)| former.name == new.name)
        };
        let former = former.filter(has_same_types);
        let types = self.facts.iter().zip(self.labels.iter()).enumerate();
        let is_new = |at: usize, facts: &TypeFacts, labels: &Requirements| {
            former.is_none_or(|former| former.facts[at] != *facts || former.labels[at] != *labels)
        };
        CatalogChange {
            region: self.region.clone(),
            prices: self.prices.clone(),
            notes: self.notes.clone(),
            settings: self.settings,
            is_whole: former.is_none(),
            types: types
                .filter(|(at, (facts, labels))| is_new(*at, facts, labels))
                .map(|(_, (facts, labels))| (facts.clone(), labels.clone()))
                .collect(),
        }
    }
}

impl CatalogChange {
    /// The catalogue that it leads to from `former`.
    pub fn apply_to(self, former: Option<&Catalog>) -> Result<Catalog, Misfit> {
        let (facts, labels) = if self.is_whole {
            let disorder = self.types.windows(2).find(|pair| pair[0].0.name >= pair[1].0.name);
            if let Some(pair) = disorder {
                return Err(Misfit::Disorder(pair[1].0.name));
            }
            self.types.into_iter().unzip()
        } else {
            let former = former.ok_or(Misfit::NothingBefore)?;
            let at: BTreeMap<TypeName, usize> =
                former.facts.iter().enumerate().map(|(at, facts)| (facts.name, at)).collect();
            let (mut facts, mut labels) = ((*former.facts).clone(), (*former.labels).clone());
            for (new, its_labels) in self.types {
                let at = *at.get(&new.name).ok_or(Misfit::Unknown(new.name))?;
                (facts[at], labels[at]) = (new, its_labels);
            }
            (facts, labels)
        };
        if facts.len() > usize::from(u16::MAX) {
            return Err(Misfit::TooMany);
        }
        Ok(Catalog {
            region: self.region,
            prices: self.prices,
            notes: self.notes,
            settings: self.settings,
            zones: super::zones_of(&facts),
            facts: Arc::new(facts),
            labels: Arc::new(labels),
            shapes: memory::Memory::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::model::name::Zone;
    use crate::model::offering::CapacityType;

    fn through_text(change: &CatalogChange) -> CatalogChange {
        let text = serde_json::to_string(change).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    fn is_same(one: &Catalog, other: &Catalog) -> bool {
        one.region == other.region
            && one.prices == other.prices
            && one.notes == other.notes
            && one.settings == other.settings
            && one.facts == other.facts
            && one.labels == other.labels
    }

    #[test]
    fn a_change_is_as_large_as_what_changed_and_leads_to_the_same() {
        let before = Catalog::builtin("us-east-1").unwrap();
        let whole = through_text(&before.change_since(None));
        let copy = whole.clone().apply_to(None).unwrap();
        assert!(is_same(&before, &copy));
        let spot = BTreeMap::from([(
            (TypeName::new("m5.large"), Zone::new("us-east-1b")),
            "0.0401".parse().unwrap(),
        )]);
        let after = before.with_spot_prices(&spot);
        let change = through_text(&after.change_since(Some(&before)));
        assert_eq!(change.types.len(), 1);
        let led_to = change.clone().apply_to(Some(&copy)).unwrap();
        assert!(is_same(&after, &led_to));
        let price = led_to.find("m5.large").unwrap().price(Zone::new("us-east-1b"), CapacityType::Spot);
        assert_eq!(price, Some("0.0401".parse().unwrap()));
        assert!(matches!(change.clone().apply_to(None), Err(Misfit::NothingBefore)));
        // Other types are another catalogue, whatever was before it.
        let fewer: String = before.to_csv().lines().take(40).map(|line| format!("{line}\n")).collect();
        let other = Catalog::parse_csv(&fewer, "prices.csv").unwrap();
        assert!(is_same(&other, &other.change_since(Some(&before)).apply_to(None).unwrap()));
        let mut twice = whole;
        twice.types.push(twice.types[0].clone());
        assert!(matches!(twice.apply_to(None), Err(Misfit::Disorder(_))));
    }
}
