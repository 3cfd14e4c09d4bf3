//! Errors of the SDK as facts: what they mean for a launch, and how they are told.

use std::sync::Arc;

use aws_sdk_ec2::config::http::HttpResponse;
use aws_sdk_ec2::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};

use super::super::CloudError;
use crate::api::ec2::refusal::{Refusal, classify};
use crate::model::observation::LaunchFailure;
use crate::model::symbol::Symbol;

/// One failed call.
#[derive(Clone, Debug)]
pub(super) struct CallFailure {
    pub call: &'static str,
    pub refusal: Refusal,
    pub message: Arc<str>,
}

impl CallFailure {
    pub(super) fn new<E>(call: &'static str, error: SdkError<E, HttpResponse>) -> Self
    where
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        let refusal = match &error {
            SdkError::ServiceError(service) => {
                let (code, message) = (error.code().unwrap_or_default(), error.message().unwrap_or_default());
                match classify(code, message) {
                    Refusal::Refused(_) if service.raw().status().is_server_error() => Refusal::Busy,
                    refusal => refusal,
                }
            }
            // Not sent, not answered, not understood: nothing says that asking again is wrong.
            _ => Refusal::Busy,
        };
        let message = match (error.code(), error.message()) {
            (Some(code), Some(message)) => format!("{code}: {message}"),
            (Some(code), None) => code.to_owned(),
            _ => DisplayErrorContext(&error).to_string(),
        };
        Self { call, refusal, message: message.into() }
    }

    pub(super) fn in_region(self, region: &str) -> CloudError {
        CloudError::Failed { call: self.call, region: region.into(), message: self.message.to_string() }
    }

    pub(super) fn of_launch(self) -> LaunchFailure {
        match self.refusal {
            Refusal::Refused(reason) => LaunchFailure::Refused {
                reason: Some(Symbol::new(reason)),
                message: format!("{} says {}", self.call, self.message).into(),
            },
            _ => LaunchFailure::Transient { message: format!("{} says {}", self.call, self.message).into() },
        }
    }
}
