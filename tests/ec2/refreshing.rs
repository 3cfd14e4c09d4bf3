//! `provisor catalog refresh` against the emulated EC2.

use std::time::{Duration, Instant};

use assert_cmd::Command;
use provisor::model::catalog::Catalog;
use provisor::model::offering::CapacityType;

use provisor::io::cloud::CloudProvider;
use provisor::io::cloud::aws::AwsProvider;
use serde_json::json;

use super::emulator::{Emulator, REGION};

/// Rows: AWS-393
#[tokio::test(flavor = "multi_thread")]
async fn a_catalogue_is_what_ec2_describes() {
    let cloud = Emulator::start().await;
    let url = cloud.url.clone();
    let output = tokio::task::spawn_blocking(move || {
        Command::new(env!("CARGO_BIN_EXE_provisor"))
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
    let price = |name: &str| {
        let facts = catalog.find(name).expect("a type that EC2 sells");
        facts.price(facts.zones[0], CapacityType::OnDemand).map(|price| price.to_string())
    };
    assert_eq!(price("m5.large"), Some("0.1056".into()), "a tenth more than in the built-in table");
    assert_eq!(price("m5.metal"), Some("5.0688".into()), "on the second list");
    assert!(large.zones.len() > 2 && catalog.facts().len() > 300, "{} types", catalog.facts().len());
}

async fn price_of_large(provider: &impl CloudProvider) -> String {
    let catalog = provider.catalog().await.expect("EC2 answers");
    let large = catalog.find("m5.large").expect("a type that EC2 sells");
    large.price(large.zones[0], CapacityType::OnDemand).expect("it has a price").to_string()
}

/// Rows: AWS-392 AWS-396
#[tokio::test]
async fn without_an_answer_about_spot_prices_the_last_ones_stay() {
    let cloud = Emulator::selling("m5").await;
    let spot_of_large = async |provider: &AwsProvider| {
        let catalog = provider.catalog().await.expect("what else EC2 says counts");
        let large = catalog.find("m5.large").expect("a type that EC2 sells");
        large.zones.iter().map(|zone| large.price(*zone, CapacityType::Spot)).collect::<Vec<_>>()
    };
    let provider = cloud.provider();
    let told = spot_of_large(&provider).await;
    assert!(told.iter().any(Option::is_some), "{told:?}");
    cloud.fail("DescribeSpotPriceHistory", "UnauthorizedOperation", 403, 9).await;
    assert_eq!(spot_of_large(&provider).await, told);

    // At a start nothing was told yet.
    let built_in = spot_of_large(&cloud.provider()).await;
    assert!(built_in.iter().all(Option::is_some), "{built_in:?}");
}

/// A network without a way to the price list drops what is sent there.
#[tokio::test]
async fn a_price_list_that_does_not_answer_is_not_waited_for() {
    let cloud = Emulator::selling("m5").await;
    cloud.control("delays", json!({ "listed": 60 })).await;
    let provider = cloud.provider();
    let asked = Instant::now();
    assert_eq!(price_of_large(&provider).await, "0.096");
    assert!(asked.elapsed() < Duration::from_secs(30), "{:?}", asked.elapsed());
}

/// Rows: AWS-392 AWS-394
#[tokio::test]
async fn without_the_price_list_built_in_prices_stay_and_spot_is_asked_for() {
    let cloud = Emulator::selling("m5").await;
    cloud.fail("GetProducts", "AccessDeniedException", 400, 9).await;
    let provider = cloud.provider();
    assert_eq!(price_of_large(&provider).await, "0.096");
    let asked = cloud.calls("GetProducts").await.len();
    assert_eq!(price_of_large(&provider).await, "0.096");
    assert_eq!(cloud.calls("GetProducts").await.len(), asked, "it is not asked again at once");
    let spot = cloud.calls("DescribeSpotPriceHistory").await;
    assert_eq!(spot.len(), 2, "spot prices are asked for all the same");
    let products = ["ProductDescription.1", "ProductDescription.2"].map(|name| &spot[0]["parameters"][name]);
    assert_eq!(products, ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"]);

    // A whole answer counts, and is asked for once in half a day.
    let cloud = Emulator::selling("m5").await;
    let provider = cloud.provider();
    assert_eq!(price_of_large(&provider).await, "0.1056");
    let asked = cloud.calls("GetProducts").await.len();
    assert_eq!(price_of_large(&provider).await, "0.1056");
    assert_eq!(cloud.calls("GetProducts").await.len(), asked);
}
