//! What an error of EC2 means for a launch (aws.md 4.8). Codes are matched, never messages, but where one code says two things.

/// Codes that say "not here, not now": the offering is left alone for a while and another one tried.
const NO_CAPACITY: [&str; 7] = [
    "InsufficientInstanceCapacity",
    "MaxSpotInstanceCountExceeded",
    "VcpuLimitExceeded",
    "UnfulfillableCapacity",
    "Unsupported",
    "MaxFleetCountExceeded",
    "ReservationCapacityExceeded",
];
const SUBNET_FULL: &str = "InsufficientFreeAddressesInSubnet";
const NO_SPOT_ROLE: &str = "AuthFailure.ServiceLinkedRoleCreationNotPermitted";
const TEMPLATE_GONE: [&str; 2] =
    ["InvalidLaunchTemplateName.NotFoundException", "InvalidLaunchTemplateId.NotFound"];
const GONE: [&str; 5] = [
    "InvalidInstanceID.NotFound",
    "InvalidInstanceID.Malformed",
    "NoSuchEntity",
    "ParameterNotFound",
    "InvalidCapacityReservationId.NotFound",
];
const BUSY: [&str; 9] = [
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "RequestThrottled",
    "TooManyRequestsException",
    "EC2ThrottledException",
    "InternalError",
    "ServiceUnavailable",
    "Unavailable",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// Nothing to be had of one offering.
    NoCapacity,
    /// No address is left in the subnet that was named; another of the zone may have some.
    SubnetFull,
    /// The account may not buy spot at all until somebody makes the service-linked role.
    NoSpotRole,
    /// The template that the order names was deleted.
    TemplateGone,
    /// What was asked about does not exist.
    Gone,
    /// The token was used for an order that said something else.
    OtherOrder,
    /// Throttled or out of order: the same call may succeed later.
    Busy,
    /// The request itself, for the reason that people and metrics know it by.
    Refused(&'static str),
}

pub fn classify(code: &str, message: &str) -> Refusal {
    match code {
        _ if NO_CAPACITY.contains(&code) => Refusal::NoCapacity,
        SUBNET_FULL => Refusal::SubnetFull,
        NO_SPOT_ROLE => Refusal::NoSpotRole,
        "IdempotentParameterMismatch" => Refusal::OtherOrder,
        _ if TEMPLATE_GONE.contains(&code) => Refusal::TemplateGone,
        _ if GONE.contains(&code) => Refusal::Gone,
        _ if BUSY.contains(&code) => Refusal::Busy,
        _ => Refusal::Refused(reason(code, message)),
    }
}

fn reason(code: &str, message: &str) -> &'static str {
    let says = |words: &str| message.to_ascii_lowercase().contains(words);
    match code {
        "UnauthorizedOperation" | "AccessDenied" | "AccessDeniedException"
            if says("not authorized for images") =>
        {
            "AMIAuthorizationFailure"
        }
        "UnauthorizedOperation" | "AccessDenied" | "AccessDeniedException" => "Unauthorized",
        _ if code.starts_with("AuthFailure") => "Unauthorized",
        "InvalidSubnet.Conflict" | "InvalidParameter" if says("different networks") => {
            "SecurityGroupSubnetVPCMismatch"
        }
        "InvalidParameterValue" if says("iaminstanceprofile") || says("instance profile") => {
            "InstanceProfileNameInvalid"
        }
        "InvalidUserData.Malformed" if says("16384") || says("limited to") => "UserDataSizeLimitExceeded",
        "InvalidAMIID.Malformed" => "InvalidAMIID",
        "InvalidAMIID.NotFound" | "InvalidAMIID.Unavailable" => "AMINotFound",
        "PendingVerification" => "AccountPendingVerification",
        "InvalidParameterCombination" if says("free tier") => "FreeTierIneligible",
        _ => "LaunchFailed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_say_whether_to_ask_elsewhere_later_or_a_person() {
        for code in NO_CAPACITY {
            assert_eq!(classify(code, ""), Refusal::NoCapacity);
        }
        assert_eq!(classify("InsufficientFreeAddressesInSubnet", ""), Refusal::SubnetFull);
        assert_eq!(classify("AuthFailure.ServiceLinkedRoleCreationNotPermitted", ""), Refusal::NoSpotRole);
        assert_eq!(classify("IdempotentParameterMismatch", ""), Refusal::OtherOrder);
        assert_eq!(classify("RequestLimitExceeded", "slow down"), Refusal::Busy);
        assert_eq!(classify("InvalidInstanceID.NotFound", ""), Refusal::Gone);
        assert_eq!(classify("InvalidLaunchTemplateName.NotFoundException", ""), Refusal::TemplateGone);
        assert_eq!(
            classify("UnauthorizedOperation", "You are not authorized"),
            Refusal::Refused("Unauthorized")
        );
        assert_eq!(
            classify("UnauthorizedOperation", "Not authorized for images: [ami-1]"),
            Refusal::Refused("AMIAuthorizationFailure")
        );
        assert_eq!(
            classify("InvalidUserData.Malformed", "User data is limited to 16384 bytes"),
            Refusal::Refused("UserDataSizeLimitExceeded")
        );
        assert_eq!(classify("Surprise", "what is this"), Refusal::Refused("LaunchFailed"));
    }
}
