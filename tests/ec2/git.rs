#[allow(dead_code, reason = "the suite uses the rest")]
#[path = "../suite/git/fixture.rs"]
pub mod fixture;
