//! Kubernetes quantities, and sums of resources in whole numbers.
//!
//! A quantity is read exactly (`1.5Gi`, `250m`, `1e3`) and then kept in the unit of its resource: thousandths of a
//! core for `cpu`, bytes for memory and storage, pieces for everything else. Sums never depend on order.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::symbol::Symbol;

/// A parsed quantity in billionths, exact for every form that Kubernetes accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Quantity(i128);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("`{0}` is not a quantity; write a number with a unit, such as `500m`, `2` or `4Gi`")]
    Malformed(String),
    #[error("`{0}` is larger than any quantity that Kubernetes can hold")]
    TooLarge(String),
}

const NANO: i128 = 1_000_000_000;

impl Quantity {
    pub fn from_units(units: i64) -> Self {
        Self(i128::from(units) * NANO)
    }

    /// In thousandths, rounded up as Kubernetes does.
    pub fn millis(self) -> i64 {
        clamp(self.0.div_euclid(1_000_000) + i128::from(self.0.rem_euclid(1_000_000) != 0))
    }

    /// In whole units, rounded up as Kubernetes does.
    pub fn units(self) -> i64 {
        clamp(self.0.div_euclid(NANO) + i128::from(self.0.rem_euclid(NANO) != 0))
    }

    pub fn is_negative(self) -> bool {
        self.0 < 0
    }
}

fn clamp(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let malformed = || QuantityError::Malformed(text.into());
        let (sign, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (-1, &text[1..]),
            Some(b'+') => (1, &text[1..]),
            _ => (1, text),
        };
        let digits_end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(digits_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(malformed());
        }
        // Billionths of one unit of the suffix, as a fraction `numerator / denominator`.
        let (numerator, denominator) = scale(suffix).ok_or_else(malformed)?;
        let too_large = || QuantityError::TooLarge(text.into());
        let digits = format!("{whole}{fraction}");
        let mantissa: i128 = if digits.len() > 30 {
            return Err(too_large());
        } else {
            digits.parse().map_err(|_| malformed())?
        };
        let shift = 10_i128.checked_pow(fraction.len() as u32).ok_or_else(too_large)?;
        let scaled = mantissa.checked_mul(numerator).ok_or_else(too_large)?;
        let divisor = denominator.checked_mul(shift).ok_or_else(too_large)?;
        // Finer than a billionth rounds up, away from zero.
        let value = scaled / divisor + i128::from(scaled % divisor != 0);
        if value > i128::from(i64::MAX) * NANO {
            return Err(too_large());
        }
        Ok(Self(sign * value))
    }
}

fn scale(suffix: &str) -> Option<(i128, i128)> {
    Some(match suffix {
        "n" => (1, 1),
        "u" => (1_000, 1),
        "m" => (1_000_000, 1),
        "" => (NANO, 1),
        "k" => (NANO * 1_000, 1),
        "M" => (NANO * 1_000_000, 1),
        "G" => (NANO * 1_000_000_000, 1),
        "T" => (NANO * 1_000_000_000_000, 1),
        "P" => (NANO * 1_000_000_000_000_000, 1),
        "E" => (NANO * 1_000_000_000_000_000_000, 1),
        "Ki" => (NANO << 10, 1),
        "Mi" => (NANO << 20, 1),
        "Gi" => (NANO << 30, 1),
        "Ti" => (NANO << 40, 1),
        "Pi" => (NANO << 50, 1),
        "Ei" => (NANO << 60, 1),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            match exponent {
                0..=18 => (NANO * 10_i128.pow(exponent.unsigned_abs()), 1),
                -18..=-1 => (NANO, 10_i128.pow(exponent.unsigned_abs())),
                _ => return None,
            }
        }
    })
}

/// CPU in thousandths of a core: `Millicores(1500)` is one and a half cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millicores(pub i64);

/// Memory or storage in bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Bytes(pub i64);

impl Bytes {
    pub const fn mebi(count: i64) -> Self {
        Self(count << 20)
    }

    pub const fn gibi(count: i64) -> Self {
        Self(count << 30)
    }
}

impl fmt::Display for Millicores {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 % 1000 == 0 { write!(out, "{}", self.0 / 1000) } else { write!(out, "{}m", self.0) }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, suffix) in [(60, "Ei"), (50, "Pi"), (40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")] {
            if self.0 != 0 && self.0 % (1_i64 << shift) == 0 {
                return write!(out, "{}{suffix}", self.0 >> shift);
            }
        }
        write!(out, "{}", self.0)
    }
}

/// The name of a resource, such as `cpu` or `nvidia.com/gpu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct ResourceName(pub Symbol);

/// What one whole unit of a resource's amount stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Millicores,
    Bytes,
    Pieces,
}

impl ResourceName {
    pub fn new(name: &str) -> Self {
        Self(Symbol::new(name))
    }

    pub fn unit(self) -> Unit {
        match self.0.as_str() {
            "cpu" => Unit::Millicores,
            "memory" | "ephemeral-storage" | "storage" => Unit::Bytes,
            name if name.starts_with("hugepages-") => Unit::Bytes,
            _ => Unit::Pieces,
        }
    }

    /// `quantity` in this resource's unit, rounded up.
    pub fn amount(self, quantity: Quantity) -> i64 {
        match self.unit() {
            Unit::Millicores => quantity.millis(),
            Unit::Bytes | Unit::Pieces => quantity.units(),
        }
    }

    /// `amount` as Kubernetes prints it.
    pub fn render(self, amount: i64) -> String {
        match self.unit() {
            Unit::Millicores => Millicores(amount).to_string(),
            Unit::Bytes => Bytes(amount).to_string(),
            Unit::Pieces => amount.to_string(),
        }
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// The resources that the code names.
pub mod resource {
    use super::ResourceName;
    use std::sync::LazyLock;

    pub static CPU: LazyLock<ResourceName> = LazyLock::new(|| ResourceName::new("cpu"));
    pub static MEMORY: LazyLock<ResourceName> = LazyLock::new(|| ResourceName::new("memory"));
    pub static PODS: LazyLock<ResourceName> = LazyLock::new(|| ResourceName::new("pods"));
    pub static EPHEMERAL_STORAGE: LazyLock<ResourceName> =
        LazyLock::new(|| ResourceName::new("ephemeral-storage"));
    /// A pool's count of nodes, in limits only.
    pub static NODES: LazyLock<ResourceName> = LazyLock::new(|| ResourceName::new("nodes"));
}

/// Amounts by resource, each in its resource's unit. A resource that is not listed counts as zero; a listed zero is
/// kept, because a limit of zero is not the absence of a limit. Amounts may be negative: what is left can be overdrawn.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resources(Vec<(ResourceName, i64)>);

impl Resources {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn get(&self, name: ResourceName) -> i64 {
        self.find(name).map_or(0, |at| self.0[at].1)
    }

    /// The amount if the resource is listed at all.
    pub fn listed(&self, name: ResourceName) -> Option<i64> {
        self.find(name).map(|at| self.0[at].1)
    }

    pub fn set(&mut self, name: ResourceName, amount: i64) {
        match self.0.binary_search_by(|(listed, _)| listed.cmp(&name)) {
            Ok(at) => self.0[at].1 = amount,
            Err(at) => self.0.insert(at, (name, amount)),
        }
    }

    pub fn remove(&mut self, name: ResourceName) {
        self.0.retain(|(listed, _)| *listed != name);
    }

    pub fn iter(&self) -> impl Iterator<Item = (ResourceName, i64)> + '_ {
        self.0.iter().copied()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn cpu(&self) -> Millicores {
        Millicores(self.get(*resource::CPU))
    }

    pub fn memory(&self) -> Bytes {
        Bytes(self.get(*resource::MEMORY))
    }

    pub fn pods(&self) -> i64 {
        self.get(*resource::PODS)
    }

    fn find(&self, name: ResourceName) -> Option<usize> {
        self.0.iter().position(|(listed, _)| *listed == name)
    }

    fn combine(&mut self, other: &Self, with: impl Fn(i64, i64) -> i64) {
        for (name, amount) in other.iter() {
            match self.0.binary_search_by(|(listed, _)| listed.cmp(&name)) {
                Ok(at) => self.0[at].1 = with(self.0[at].1, amount),
                Err(at) => self.0.insert(at, (name, with(0, amount))),
            }
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.combine(other, i64::saturating_add);
    }

    pub fn subtract(&mut self, other: &Self) {
        self.combine(other, i64::saturating_sub);
    }

    /// Raises each amount to at least that of `other`.
    pub fn raise(&mut self, other: &Self) {
        self.combine(other, i64::max);
    }

    pub fn plus(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        sum.add(other);
        sum
    }

    pub fn minus(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.subtract(other);
        rest
    }

    /// Whether this request fits into `total`: nothing fits a total with a negative entry, and a request of zero fits
    /// even where the total does not know the resource.
    pub fn fits(&self, total: &Self) -> bool {
        total.0.iter().all(|(_, amount)| *amount >= 0)
            && self.0.iter().all(|(name, amount)| *amount <= 0 || *amount <= total.get(*name))
    }
}

impl FromIterator<(ResourceName, i64)> for Resources {
    fn from_iter<T: IntoIterator<Item = (ResourceName, i64)>>(amounts: T) -> Self {
        let mut resources = Self::default();
        for (name, amount) in amounts {
            resources.set(name, amount);
        }
        resources
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, amount)) in self.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(out, "{comma}{name} {}", name.render(amount))?;
        }
        Ok(())
    }
}

impl serde::Serialize for Resources {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter().map(|(name, amount)| (name, name.render(amount))))
    }
}

impl<'de> serde::Deserialize<'de> for Resources {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let written = BTreeMap::<ResourceName, String>::deserialize(from)?;
        let amounts = written.into_iter().map(|(name, text)| {
            let quantity: Quantity = text.parse().map_err(serde::de::Error::custom)?;
            Ok((name, name.amount(quantity)))
        });
        amounts.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(text: &str) -> i64 {
        text.parse::<Quantity>().unwrap().millis()
    }

    #[test]
    fn every_form_of_a_quantity_is_read_exactly() {
        for (text, expected) in [
            ("250m", 250),
            ("2", 2000),
            ("1.5", 1500),
            ("1e3", 1_000_000),
            ("0.1", 100),
            (".5", 500),
            ("1u", 1),
            ("-1", -1000),
        ] {
            assert_eq!(millis(text), expected, "{text}");
        }
        for (text, expected) in [
            ("1Ki", 1024),
            ("1.5Gi", 3 << 29),
            ("100M", 100_000_000),
            ("1E", 1_000_000_000_000_000_000),
            ("12e-1", 2),
        ] {
            assert_eq!(text.parse::<Quantity>().unwrap().units(), expected, "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_text_and_an_example() {
        for text in ["", "Gi", "1.2.3", "4GB", "one", "1 Gi", "--1", "1e99"] {
            let error = text.parse::<Quantity>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
        assert!(matches!("99999E".parse::<Quantity>(), Err(QuantityError::TooLarge(_))));
    }

    #[test]
    fn bytes_print_in_the_largest_exact_unit() {
        assert_eq!(Bytes::mebi(512).to_string(), "512Mi");
        assert_eq!(Bytes(1_000_000).to_string(), "1000000");
        assert_eq!(Bytes(0).to_string(), "0");
        assert_eq!(Millicores(1930).to_string(), "1930m");
    }

    #[test]
    fn sch_427_the_larger_amount_of_each_resource_is_kept() {
        let of = |amounts: &[(&str, i64)]| -> Resources {
            amounts.iter().map(|(name, amount)| (ResourceName::new(name), *amount)).collect()
        };
        let mut most = of(&[("cpu", 1), ("memory", 4)]);
        most.raise(&of(&[("cpu", 3), ("memory", 2)]));
        most.raise(&of(&[("cpu", 2), ("memory", 8)]));
        assert_eq!(most, of(&[("cpu", 3), ("memory", 8)]));
        most.raise(&of(&[("x.com/a", 5)]));
        assert_eq!(most, of(&[("cpu", 3), ("memory", 8), ("x.com/a", 5)]));
    }

    /// Rows: SCH-434
    #[test]
    fn nothing_fits_an_overdrawn_total() {
        let one_cpu: Resources = [(*resource::CPU, 1000)].into_iter().collect();
        let overdrawn: Resources = [(*resource::CPU, 4000), (*resource::MEMORY, -1)].into_iter().collect();
        assert!(!one_cpu.fits(&overdrawn));
        let zero_gpu: Resources = [(ResourceName::new("nvidia.com/gpu"), 0)].into_iter().collect();
        assert!(zero_gpu.fits(&one_cpu));
    }
}
