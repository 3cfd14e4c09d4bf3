//! `provisor catalog refresh` against the emulated EC2.

use assert_cmd::Command;
use provisor::model::catalog::Catalog;

use super::emulator::{Emulator, REGION};

#[tokio::test(flavor = "multi_thread")]
async fn a_catalogue_is_what_ec2_describes() {
    let cloud = Emulator::start().await;
    let url = cloud.url.clone();
    let output = tokio::task::spawn_blocking(move || {
        Command::cargo_bin("provisor")
            .expect("it is built")
            .args(["catalog", "refresh", "--region", REGION])
            .env("AWS_ENDPOINT_URL", url)
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .output()
            .expect("it runs")
    })
    .await
    .expect("no panic");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("a text");
    let catalog = Catalog::parse_csv(&text, "refreshed.csv").expect("a catalogue");
    let large = catalog.find("m5.large").expect("a type that EC2 sells");
    assert_eq!((large.vcpus, large.memory_mib), (2, 8192));
    assert!(large.zones.len() > 2 && catalog.facts().len() > 300, "{} types", catalog.facts().len());
}
