//! Writes that the API server refuses while other things are decided on top of them.

use std::net::TcpListener;

use serde_json::json;

use super::bench::{Bench, is_true, text};

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
/// So long the API server waits for an answer.
const PATIENCE_SECONDS: u16 = 2;

/// The labels of a claim are asked about at a door that nobody opens, so writing them fails after a while; meanwhile its machine joins, and
/// more is decided about it.
#[test]
fn what_was_decided_on_top_of_a_write_that_failed_is_not_carried_out() {
    let bench = Bench::new();
    let strangers = bench.plant_strangers();
    let running = bench.start_as(0, "0s", &[]);
    bench.wait("pool applied", || bench.pool_is_ready());
    let deaf = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("https://{}/", deaf.local_addr().expect("an address"));
    let hook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": "nobody" },
        "webhooks": [{
            "name": "nobody.tests.provisor.dev", "clientConfig": { "url": url },
            "rules": [{
                "apiGroups": ["karpenter.sh"], "apiVersions": ["v1"], "resources": ["nodeclaims"],
                "operations": ["UPDATE"],
            }],
            "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "timeoutSeconds": PATIENCE_SECONDS,
        }],
    });
    bench.plane.api.post(WEBHOOKS, &hook).expect("a webhook");

    // Each pod needs a machine of its own.
    bench.deploy("web", 3, "9", "1Gi");
    let failures = || running.log().matches("failed calling webhook").count();
    bench.wait("refused, and tried again", || {
        for claim in bench.claims() {
            let is_launched = is_true(&claim, "Launched");
            assert!(!is_launched || claim["status"]["providerID"].is_string(), "written in part: {claim:#}");
        }
        failures() >= 9
    });
    bench.plane.api.delete(&format!("{WEBHOOKS}/nobody"));
    bench.wait("all running", || bench.all_run(3));
    bench.expect_one_machine_for_each_claim();
    assert_eq!(bench.claims_made().len(), 3, "{}", bench.logs());
    for claim in bench.claims() {
        assert!(is_true(&claim, "Initialized"), "{claim:#}");
        assert_eq!(text(&claim, "/metadata/labels/karpenter.sh~1capacity-type"), "on-demand");
    }
    bench.expect_untouched(&strangers);
    assert_eq!(running.stop(), 130);
}
