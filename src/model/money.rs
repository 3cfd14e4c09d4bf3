//! Prices in whole micro-dollars an hour, so that sums are exact and do not depend on order.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Neg, Sub};
use std::str::FromStr;

use jiff::SignedDuration;

/// US dollars per hour in millionths: `UsdPerHour(96_000)` is 0.096 dollars an hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UsdPerHour(pub i64);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a price; write dollars with at most six decimals, such as `0.096`")]
pub struct PriceError(String);

impl UsdPerHour {
    pub const ZERO: Self = Self(0);

    /// So much of it as `part` is of `whole`, rounded down; nothing of nothing.
    pub fn share(self, part: Self, whole: Self) -> Self {
        let share = i128::from(self.0) * i128::from(part.0) / i128::from(whole.0).max(1);
        Self(i64::try_from(share).unwrap_or(i64::MAX))
    }

    /// What this price costs over `duration`, in micro-dollars, rounded down.
    pub fn over(self, duration: SignedDuration) -> Usd {
        let micros = i128::from(self.0) * duration.as_millis() / 3_600_000;
        Usd(i64::try_from(micros).unwrap_or(i64::MAX))
    }
}

/// An amount of US dollars in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Usd(pub i64);

impl FromStr for UsdPerHour {
    type Err = PriceError;

    /// Digits after the sixth decimal are rounded half up: EC2 publishes up to ten.
    fn from_str(text: &str) -> Result<Self, PriceError> {
        let refused = || PriceError(text.into());
        let (sign, unsigned) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !is_digits(whole) || !is_digits(fraction) {
            return Err(refused());
        }
        let dollars: i64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| refused())? };
        let mut micros: i64 = 0;
        for place in 0..6 {
            micros = micros * 10 + fraction.as_bytes().get(place).map_or(0, |digit| i64::from(digit - b'0'));
        }
        if fraction.as_bytes().get(6).is_some_and(|digit| *digit >= b'5') {
            micros += 1;
        }
        let total =
            dollars.checked_mul(1_000_000).and_then(|value| value.checked_add(micros)).ok_or_else(refused)?;
        Ok(Self(sign * total))
    }
}

fn print(micros: i64, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let sign = if micros < 0 { "-" } else { "" };
    let (whole, fraction) = (micros.unsigned_abs() / 1_000_000, micros.unsigned_abs() % 1_000_000);
    let digits = format!("{fraction:06}");
    let digits = digits.trim_end_matches('0');
    let point = if digits.is_empty() { "" } else { "." };
    out.pad(&format!("{sign}{whole}{point}{digits}"))
}

impl fmt::Display for UsdPerHour {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(self.0, out)
    }
}

impl fmt::Display for Usd {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(self.0, out)
    }
}

macro_rules! sums {
    ($($money:ident),*) => {$(
        impl Add for $money {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }
        impl Sub for $money {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }
        impl Neg for $money {
            type Output = Self;
            fn neg(self) -> Self {
                Self(-self.0)
            }
        }
        impl AddAssign for $money {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }
        impl Sum for $money {
            fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
                amounts.fold(Self(0), Add::add)
            }
        }
        impl serde::Serialize for $money {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $money {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
                let price: UsdPerHour = text.parse().map_err(serde::de::Error::custom)?;
                Ok(Self(price.0))
            }
        }
    )*};
}

sums!(UsdPerHour, Usd);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_print_exactly_and_parse_back() {
        for text in ["0.096", "4.608", "0", "12", "0.000001", "-1.5"] {
            assert_eq!(text.parse::<UsdPerHour>().unwrap().to_string(), text);
        }
        assert_eq!("0.0000005".parse::<UsdPerHour>().unwrap(), UsdPerHour(1));
        assert_eq!("3.0600000000".parse::<UsdPerHour>().unwrap(), UsdPerHour(3_060_000));
    }

    #[test]
    fn a_price_that_is_none_is_refused() {
        for text in ["", ".", "1,5", "$1", "1e3", "99999999999999"] {
            assert!(text.parse::<UsdPerHour>().is_err(), "{text}");
        }
    }

    #[test]
    fn cost_is_price_times_time() {
        assert_eq!(UsdPerHour(96_000).over(SignedDuration::from_mins(30)), Usd(48_000));
    }
}
