//! The few calls of services whose SDK is not worth its build: Systems Manager, IAM and the price list, over plain signed
//! requests.

use std::time::{Duration, SystemTime};

use aws_config::SdkConfig;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use serde_json::{Value, json};

use super::super::CloudError;
use crate::io::clock;

const PATIENCE: Duration = Duration::from_secs(30);
const ATTEMPTS_MAX: u32 = 3;

#[derive(Debug)]
pub(super) struct SignedClient {
    http: reqwest::Client,
    credentials: Option<SharedCredentialsProvider>,
    region: String,
    /// Of an emulator; else that of AWS.
    endpoint: Option<String>,
}

/// Why a signed call gave no answer.
#[derive(Clone, Debug)]
pub(super) struct SignedFailure {
    pub code: String,
    pub message: String,
}

impl SignedFailure {
    fn new(code: &str, message: impl ToString) -> Self {
        Self { code: code.into(), message: message.to_string() }
    }

    pub(super) fn into_cloud(self, call: &'static str, region: &str) -> CloudError {
        CloudError::Failed {
            call,
            region: region.into(),
            message: format!("{}: {}", self.code, self.message),
        }
    }
}

struct Call<'a> {
    service: &'static str,
    region: &'a str,
    url: String,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl SignedClient {
    pub(super) fn new(config: &SdkConfig, region: &str) -> Self {
        Self {
            http: reqwest::Client::builder().timeout(PATIENCE).build().unwrap_or_default(),
            credentials: config.credentials_provider(),
            region: region.into(),
            endpoint: config.endpoint_url().map(|url| url.trim_end_matches('/').to_owned()),
        }
    }

    /// The value of a parameter of Systems Manager; `None` if there is none of this name.
    pub(super) async fn parameter(&self, name: &str) -> Result<Option<String>, SignedFailure> {
        let host = || format!("https://ssm.{}.{}", self.region, suffix(&self.region));
        let call = Call {
            service: "ssm",
            region: &self.region,
            url: format!("{}/", self.endpoint.clone().unwrap_or_else(host)),
            headers: vec![
                ("content-type", "application/x-amz-json-1.1".into()),
                ("x-amz-target", "AmazonSSM.GetParameter".into()),
            ],
            body: json!({ "Name": name }).to_string(),
        };
        let answer = match self.send(&call).await {
            Ok(text) => text,
            Err(failure) if failure.code == "ParameterNotFound" => return Ok(None),
            Err(failure) => return Err(failure),
        };
        let answer: Value =
            serde_json::from_str(&answer).map_err(|error| SignedFailure::new("NotUnderstood", error))?;
        Ok(answer.pointer("/Parameter/Value").and_then(Value::as_str).map(str::to_owned))
    }

    /// A page of the price list.
    pub(super) async fn price_list(&self, request: &Value) -> Result<Value, SignedFailure> {
        // It answers in a few regions only, about all of them.
        let home = match self.region.split('-').next().unwrap_or_default() {
            "cn" => "cn-northwest-1",
            "ap" => "ap-south-1",
            "eu" => "eu-central-1",
            _ => "us-east-1",
        };
        let host = || format!("https://api.pricing.{home}.{}", suffix(home));
        let call = Call {
            service: "pricing",
            region: home,
            url: format!("{}/", self.endpoint.clone().unwrap_or_else(host)),
            headers: vec![
                ("content-type", "application/x-amz-json-1.1".into()),
                ("x-amz-target", "AWSPriceListService.GetProducts".into()),
            ],
            body: request.to_string(),
        };
        let answer = self.send(&call).await?;
        serde_json::from_str(&answer).map_err(|error| SignedFailure::new("NotUnderstood", error))
    }

    /// An action of IAM; the answer is its XML.
    pub(super) async fn iam(
        &self,
        action: &str,
        parameters: &[(String, String)],
    ) -> Result<String, SignedFailure> {
        // IAM is one for all regions of a partition.
        let (home, host) = match suffix(&self.region) {
            "amazonaws.com.cn" => ("cn-north-1", "https://iam.cn-north-1.amazonaws.com.cn"),
            _ if self.region.starts_with("us-gov-") => ("us-gov-west-1", "https://iam.us-gov.amazonaws.com"),
            _ => ("us-east-1", "https://iam.amazonaws.com"),
        };
        let fixed = [("Action", action), ("Version", "2010-05-08")];
        let own = parameters.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let mut form = reqwest::Url::parse(host).map_err(|error| SignedFailure::new("NotSent", error))?;
        form.query_pairs_mut().extend_pairs(fixed.into_iter().chain(own));
        let call = Call {
            service: "iam",
            region: home,
            url: format!("{}/", self.endpoint.as_deref().unwrap_or(host)),
            headers: vec![("content-type", "application/x-www-form-urlencoded".into())],
            body: form.query().unwrap_or_default().to_owned(),
        };
        self.send(&call).await
    }

    async fn send(&self, call: &Call<'_>) -> Result<String, SignedFailure> {
        let mut attempt = 1;
        loop {
            match self.send_once(call).await {
                Err(failure) if attempt < ATTEMPTS_MAX && failure.is_passing() => {
                    tokio::time::sleep(Duration::from_millis(200 << attempt)).await;
                    attempt += 1;
                }
                answer => return answer,
            }
        }
    }

    async fn send_once(&self, call: &Call<'_>) -> Result<String, SignedFailure> {
        let refused = |error: &dyn std::error::Error| SignedFailure::new("NotSigned", error);
        let Some(provider) = &self.credentials else {
            return Err(SignedFailure::new("NotSigned", "there are no credentials"));
        };
        let credentials = provider.provide_credentials().await.map_err(|error| refused(&error))?;
        let identity = credentials.into();
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(call.region)
            .name(call.service)
            .time(SystemTime::from(clock::now()))
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| refused(&error))?
            .into();
        let headers = call.headers.iter().map(|(name, value)| (*name, value.as_str()));
        let signable =
            SignableRequest::new("POST", &call.url, headers, SignableBody::Bytes(call.body.as_bytes()))
                .map_err(|error| refused(&error))?;
        let (signature, _) = sign(signable, &parameters).map_err(|error| refused(&error))?.into_parts();
        let mut request = self.http.post(&call.url).body(call.body.clone());
        for (name, value) in &call.headers {
            request = request.header(*name, value);
        }
        for (name, value) in signature.headers() {
            request = request.header(name, value);
        }
        let answer = request.send().await.map_err(|error| SignedFailure::new("NotAnswered", error))?;
        let status = answer.status();
        let text = answer.text().await.map_err(|error| SignedFailure::new("NotAnswered", error))?;
        if status.is_success() { Ok(text) } else { Err(SignedFailure::read(status.as_u16(), &text)) }
    }
}

impl SignedFailure {
    /// An error as JSON or XML tells it.
    fn read(status: u16, text: &str) -> Self {
        if let Ok(value) = serde_json::from_str::<Value>(text) {
            let word = |key: &str| value.get(key).and_then(Value::as_str);
            let code = word("__type").unwrap_or_default();
            let message = word("message").or_else(|| word("Message")).unwrap_or_default();
            return Self::new(code.rsplit('#').next().unwrap_or(code), message);
        }
        match between(text, "<Code>", "</Code>") {
            Some(code) => Self::new(code, between(text, "<Message>", "</Message>").unwrap_or_default()),
            None => Self::new(&format!("Status{status}"), text.chars().take(200).collect::<String>()),
        }
    }

    fn is_passing(&self) -> bool {
        ["NotAnswered", "Status5", "Throttling", "InternalError", "InternalServerError", "ServiceUnavailable"]
            .iter()
            .any(|code| self.code.starts_with(code))
    }
}

/// What stands between two tags of an XML document that has them once.
pub(super) fn between<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(open)?;
    rest.split_once(close).map(|(inner, _)| inner)
}

/// What the names of a region's endpoints end in.
fn suffix(region: &str) -> &'static str {
    if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_read_in_both_forms() {
        let json = r#"{"__type": "com.amazonaws.ssm#ParameterNotFound", "message": "no such"}"#;
        assert_eq!(SignedFailure::read(400, json).code, "ParameterNotFound");
        let xml = "<ErrorResponse><Error><Code>NoSuchEntity</Code><Message>role x</Message></Error></ErrorResponse>";
        let failure = SignedFailure::read(404, xml);
        assert_eq!((failure.code.as_str(), failure.message.as_str()), ("NoSuchEntity", "role x"));
        assert!(SignedFailure::read(503, "busy").is_passing() && !failure.is_passing());
    }
}
