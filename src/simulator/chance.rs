//! Dice. All chance of a simulated world comes from one seeded stream, so a seed is a whole life of a cluster.

use jiff::SignedDuration;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

/// A whole number below `bound`, which must not be 0.
pub fn below(rng: &mut ChaCha8Rng, bound: u64) -> u64 {
    // The bias of the remainder is below 2^-40 for every bound used here.
    rng.next_u64() % bound
}

/// A duration between the two, to the millisecond.
pub fn between(rng: &mut ChaCha8Rng, least: SignedDuration, most: SignedDuration) -> SignedDuration {
    let span = (most - least).as_millis().max(0) as u64;
    least + SignedDuration::from_millis(below(rng, span + 1) as i64)
}

/// Whether something with a probability of `permille` in a thousand happens.
pub fn happens(rng: &mut ChaCha8Rng, permille: u32) -> bool {
    below(rng, 1000) < u64::from(permille)
}

/// The wait until an event that happens on average once in `mean` (exponential, in steps of 1/4096 of the unit interval).
pub fn wait(rng: &mut ChaCha8Rng, mean: SignedDuration) -> SignedDuration {
    // -ln(u) in thousandths for u = (k + 1) / 4096, without floating point: ln2 * (12 - log2(k + 1)).
    let k = below(rng, 4096) + 1;
    let whole = u64::from(k.ilog2());
    // Linear between powers of two: the error of log2 is below 0.09.
    let fraction = (k - (1 << whole)) * 1000 / (1 << whole);
    let log2_thousandths = whole * 1000 + fraction;
    let thousandths = (12_000 - log2_thousandths) * 693 / 1000;
    SignedDuration::from_millis((mean.as_millis() * i128::from(thousandths) / 1000) as i64)
}
