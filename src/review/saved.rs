//! A review that was written elsewhere, read again: maybe by a pipeline that runs whatever a stranger proposes.
//!
//! Nothing in it is believed: it has to have the shape of a review, its amounts and moments have to be such, and its words
//! go through the same hands as those of any repository when they are shown.

use jiff::Timestamp;

use super::report::{Remark, Review};

/// Bytes of a review; what a large fleet makes is far below.
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// Letters of an amount.
const AMOUNT_MAX: usize = 40;

#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    #[error("it has {0} bytes, and {BYTES_MAX} are read")]
    TooLarge(usize),
    #[error("it is no review: {0}")]
    NoReview(String),
    #[error("it is a review of version {0}, and version 1 is known")]
    Version(u32),
    #[error("`{0}` is no amount of dollars")]
    Amount(String),
    #[error("`{0}` is no moment")]
    Moment(String),
}

/// Reads what `--output json` wrote, and lets it say that nobody has checked it.
pub fn read_saved(bytes: &[u8]) -> Result<Review, SavedError> {
    if bytes.len() > BYTES_MAX {
        return Err(SavedError::TooLarge(bytes.len()));
    }
    let mut review: Review =
        serde_json::from_slice(bytes).map_err(|error| SavedError::NoReview(error.to_string()))?;
    if review.version != 1 {
        return Err(SavedError::Version(review.version));
    }
    for amount in amounts(&review) {
        if !is_amount(amount) {
            return Err(SavedError::Amount(shortened(amount)));
        }
    }
    if let Some(moment) = review.data_as_of.as_ref().filter(|moment| moment.parse::<Timestamp>().is_err()) {
        return Err(SavedError::Moment(shortened(moment)));
    }
    let message =
        "this review was made by a pipeline that the proposal itself can change; nobody has checked it";
    let remark = Remark { code: "MadeElsewhere".into(), message: message.into(), origin: None };
    review.diagnostics.insert(0, remark);
    Ok(review)
}

/// What is shown as it stands, because programs write it.
fn amounts(review: &Review) -> impl Iterator<Item = &str> {
    let costs = review.environments.iter().filter_map(|environment| environment.cost.as_ref());
    let of_costs = costs.flat_map(|cost| {
        let own = [&cost.before, &cost.after, &cost.delta, &cost.running_usd_per_hour];
        let rest = [&cost.reached_usd_per_hour, &cost.usd_per_hour.before, &cost.usd_per_hour.after];
        let kinds = [&cost.by_capacity_type.spot, &cost.by_capacity_type.on_demand];
        let last = [&cost.usd_per_hour.delta, &cost.by_capacity_type.reserved];
        let pools = cost.by_pool.iter().flat_map(|pool| [&pool.before, &pool.after, &pool.delta]);
        own.into_iter().chain(rest).chain(kinds).chain(last).chain(pools)
    });
    let choices = review.environments.iter().filter_map(|environment| environment.choice.as_ref());
    let of_choices = choices
        .map(|choice| &choice.largest_share)
        .flat_map(|share| [&share.before, &share.after, &share.delta]);
    let draws = review.environments.iter().filter_map(|environment| environment.draws.as_ref()).flatten();
    let of_draws = draws.flat_map(|draw| [&draw.running_usd_per_hour, &draw.reached_usd_per_hour]);
    of_costs.chain(of_choices).chain(of_draws).map(String::as_str)
}

fn is_amount(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    text.len() <= AMOUNT_MAX && is_number(whole) && is_number(fraction)
}

fn shortened(text: &str) -> String {
    text.chars().take(AMOUNT_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_digits() {
        for amount in ["0", "-3.50", "6733061586903986.33911"] {
            assert!(is_amount(amount), "{amount}");
        }
        for other in ["", "-", ".5", "5.", "1e9", "<b>", "1 | 2", "٣", "1.2.3"] {
            assert!(!is_amount(other), "{other}");
        }
    }
}
