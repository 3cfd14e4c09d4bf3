//! What Provisor must be allowed in AWS, and not more; the queue that it reads and the rules that fill it (aws.md 6).
//!
//! `${…}` stands for what differs between installations, in the way that CloudFormation fills it in.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::tag;

/// IAM takes no more in one managed policy, white space not counted.
pub const POLICY_CHARS_MAX: usize = 6_144;

/// Permissions that no call of ours names: EC2 and IAM ask for them while they carry out another.
pub const IMPLIED: [&str; 3] = ["ec2:RunInstances", "iam:PassRole", "iam:TagInstanceProfile"];

struct Statement {
    sid: &'static str,
    actions: &'static [&'static str],
    resources: Vec<String>,
    condition: Value,
}

/// A managed policy: what it is for, and what it allows.
pub struct Policy {
    pub name: &'static str,
    pub document: Value,
}

const LAUNCH: [&str; 2] = ["ec2:RunInstances", "ec2:CreateFleet"];
const CREATED: [&str; 6] =
    ["fleet", "instance", "volume", "network-interface", "launch-template", "spot-instances-request"];

fn ec2(kinds: &[&str]) -> Vec<String> {
    kinds.iter().map(|kind| format!("arn:${{AWS::Partition}}:ec2:${{AWS::Region}}:*:{kind}/*")).collect()
}

/// Images and snapshots may be anybody's.
fn ec2_shared(kinds: &[&str]) -> Vec<String> {
    kinds.iter().map(|kind| format!("arn:${{AWS::Partition}}:ec2:${{AWS::Region}}::{kind}/*")).collect()
}

fn owned() -> String {
    tag::owned_by("${ClusterName}")
}

fn is_ours() -> Value {
    json!({
        "StringEquals": { format!("aws:ResourceTag/{}", owned()): "owned" },
        "StringLike": { format!("aws:ResourceTag/{}", tag::POOL): "*" },
    })
}

fn becomes_ours() -> Value {
    json!({
        "StringEquals": {
            format!("aws:RequestTag/{}", owned()): "owned",
            format!("aws:RequestTag/{}", tag::CLUSTER_NAME): "${ClusterName}",
        },
        "StringLike": { format!("aws:RequestTag/{}", tag::POOL): "*" },
    })
}

fn profile_tags(which: &str) -> Value {
    json!({
        "StringEquals": {
            format!("aws:{which}/{}", owned()): "owned",
            format!("aws:{which}/topology.kubernetes.io/region"): "${AWS::Region}",
        },
        "StringLike": { format!("aws:{which}/{}", tag::CLASS): "*" },
    })
}

fn launching() -> Vec<Statement> {
    let mut inputs = ec2_shared(&["image", "snapshot"]);
    inputs.extend(ec2(&["security-group", "subnet"]));
    let mut tagging = becomes_ours();
    tagging["StringEquals"]["ec2:CreateAction"] =
        json!(["RunInstances", "CreateFleet", "CreateLaunchTemplate"]);
    let mut naming = is_ours();
    naming["ForAllValues:StringEquals"] = json!({ "aws:TagKeys": [tag::NAME, tag::CLAIM] });
    vec![
        Statement {
            sid: "LaunchFromWhatIsThere",
            actions: &LAUNCH,
            resources: inputs,
            condition: Value::Null,
        },
        Statement {
            sid: "LaunchByOurTemplates",
            actions: &LAUNCH,
            resources: ec2(&["launch-template"]),
            condition: is_ours(),
        },
        Statement {
            sid: "CreateWhatIsOurs",
            actions: &["ec2:RunInstances", "ec2:CreateFleet", "ec2:CreateLaunchTemplate"],
            resources: ec2(&CREATED),
            condition: becomes_ours(),
        },
        Statement {
            sid: "TagWhatIsCreated",
            actions: &["ec2:CreateTags"],
            resources: ec2(&CREATED),
            condition: tagging,
        },
        Statement {
            sid: "NameMachines",
            actions: &["ec2:CreateTags"],
            resources: ec2(&["instance"]),
            condition: naming,
        },
        Statement {
            sid: "DeleteWhatIsOurs",
            actions: &["ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"],
            resources: ec2(&["instance", "launch-template"]),
            condition: is_ours(),
        },
    ]
}

fn roles() -> Vec<Statement> {
    let profiles = || vec!["arn:${AWS::Partition}:iam::${AWS::AccountId}:instance-profile/*".to_owned()];
    vec![
        Statement {
            sid: "GiveNodesTheirRole",
            actions: &["iam:PassRole"],
            resources: vec!["arn:${AWS::Partition}:iam::${AWS::AccountId}:role/${NodeRoleName}".into()],
            condition: json!({
                "StringEquals": { "iam:PassedToService": ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"] },
            }),
        },
        Statement {
            sid: "CreateProfiles",
            actions: &["iam:CreateInstanceProfile", "iam:TagInstanceProfile"],
            resources: profiles(),
            condition: profile_tags("RequestTag"),
        },
        Statement {
            sid: "UseProfiles",
            actions: &[
                "iam:AddRoleToInstanceProfile",
                "iam:RemoveRoleFromInstanceProfile",
                "iam:DeleteInstanceProfile",
            ],
            resources: profiles(),
            condition: profile_tags("ResourceTag"),
        },
        Statement {
            sid: "ReadProfiles",
            actions: &["iam:GetInstanceProfile", "iam:ListInstanceProfiles"],
            resources: profiles(),
            condition: Value::Null,
        },
    ]
}

fn reading() -> Vec<Statement> {
    vec![
        Statement {
            sid: "ReadEc2",
            actions: &[
                "ec2:DescribeImages",
                "ec2:DescribeInstances",
                "ec2:DescribeInstanceTypeOfferings",
                "ec2:DescribeInstanceTypes",
                "ec2:DescribeLaunchTemplates",
                "ec2:DescribeSecurityGroups",
                "ec2:DescribeSpotPriceHistory",
                "ec2:DescribeSubnets",
            ],
            resources: vec!["*".into()],
            condition: json!({ "StringEquals": { "aws:RequestedRegion": "${AWS::Region}" } }),
        },
        // It answers in a few regions about all of them, and has no resources.
        Statement {
            sid: "ReadPrices",
            actions: &["pricing:GetProducts"],
            resources: vec!["*".into()],
            condition: Value::Null,
        },
        Statement {
            sid: "ReadImageAliases",
            actions: &["ssm:GetParameter"],
            resources: vec!["arn:${AWS::Partition}:ssm:${AWS::Region}::parameter/aws/service/*".into()],
            condition: Value::Null,
        },
        Statement {
            sid: "ReadNotices",
            actions: &["sqs:GetQueueUrl", "sqs:ReceiveMessage", "sqs:DeleteMessage"],
            resources: vec![
                "arn:${AWS::Partition}:sqs:${AWS::Region}:${AWS::AccountId}:${ClusterName}".into(),
            ],
            condition: Value::Null,
        },
    ]
}

fn document(statements: Vec<Statement>) -> Value {
    let statements: Vec<Value> = statements
        .into_iter()
        .map(|statement| {
            let mut entry = json!({
                "Sid": statement.sid,
                "Effect": "Allow",
                "Action": statement.actions,
                "Resource": statement.resources,
            });
            if !statement.condition.is_null() {
                entry["Condition"] = statement.condition;
            }
            entry
        })
        .collect();
    json!({ "Version": "2012-10-17", "Statement": statements })
}

/// The policies of the controller, by purpose.
pub fn policies() -> [Policy; 3] {
    [
        Policy { name: "Launching", document: document(launching()) },
        Policy { name: "Roles", document: document(roles()) },
        Policy { name: "Reading", document: document(reading()) },
    ]
}

/// Every action that some policy allows.
pub fn actions() -> BTreeSet<&'static str> {
    let statements = launching().into_iter().chain(roles()).chain(reading());
    statements.flat_map(|statement| statement.actions.iter().copied()).collect()
}

/// What is told about machines: the name of the rule, and what it matches.
fn rules() -> [(&'static str, Value); 5] {
    let of_ec2 = |kind: &str| json!({ "source": ["aws.ec2"], "detail-type": [kind] });
    [
        (
            "ScheduledChangeRule",
            json!({
                "source": ["aws.health"],
                "detail-type": ["AWS Health Event"],
                "detail": { "service": ["EC2"], "eventTypeCategory": ["scheduledChange"] },
            }),
        ),
        ("SpotInterruptionRule", of_ec2("EC2 Spot Instance Interruption Warning")),
        ("RebalanceRule", of_ec2("EC2 Instance Rebalance Recommendation")),
        ("InstanceStateChangeRule", of_ec2("EC2 Instance State-change Notification")),
        (
            "CapacityReservationInterruptionRule",
            of_ec2("EC2 Capacity Reservation Instance Interruption Warning"),
        ),
    ]
}

/// What the controller runs as: its account of the cluster may take the role, by EKS Pod Identity, and nobody else.
fn controller_role() -> Value {
    let cluster = "arn:${AWS::Partition}:eks:${AWS::Region}:${AWS::AccountId}:cluster/${ClusterName}";
    let policies: Vec<Value> =
        policies().iter().map(|policy| json!({ "Ref": format!("{}Policy", policy.name) })).collect();
    json!({
        "Type": "AWS::IAM::Role",
        "Properties": {
            "RoleName": { "Fn::Sub": "ProvisorController-${ClusterName}" },
            "AssumeRolePolicyDocument": {
                "Version": "2012-10-17",
                "Statement": [{
                    "Effect": "Allow",
                    "Principal": { "Service": "pods.eks.amazonaws.com" },
                    "Action": ["sts:AssumeRole", "sts:TagSession"],
                    "Condition": {
                        "StringEquals": { "aws:SourceAccount": { "Ref": "AWS::AccountId" } },
                        "ArnEquals": { "aws:SourceArn": { "Fn::Sub": cluster } },
                    },
                }],
            },
            "ManagedPolicyArns": policies,
        },
    })
}

/// What machines run as: they join the cluster, pull images, and give pods their addresses.
fn node_role() -> Value {
    let managed: Vec<Value> = [
        "AmazonEKSWorkerNodePolicy",
        "AmazonEKS_CNI_Policy",
        "AmazonEC2ContainerRegistryPullOnly",
        "AmazonSSMManagedInstanceCore",
    ]
    .map(|name| json!({ "Fn::Sub": format!("arn:${{AWS::Partition}}:iam::aws:policy/{name}") }))
    .into();
    json!({
        "Type": "AWS::IAM::Role",
        "Condition": "MakesNodeRole",
        "Properties": {
            "RoleName": { "Ref": "NodeRoleName" },
            "AssumeRolePolicyDocument": {
                "Version": "2012-10-17",
                "Statement": [{
                    "Effect": "Allow",
                    "Principal": { "Service": { "Fn::Sub": "ec2.${AWS::URLSuffix}" } },
                    "Action": "sts:AssumeRole",
                }],
            },
            "ManagedPolicyArns": managed,
        },
    })
}

/// A CloudFormation template with the policies, the roles, the queue and its rules.
pub fn cloudformation() -> Value {
    let mut resources = Map::new();
    let mut outputs = Map::new();
    for policy in policies() {
        let name = format!("{}Policy", policy.name);
        // Keys of conditions carry the cluster's name, and CloudFormation fills names into values only: hence one text.
        let text = policy.document.to_string();
        resources.insert(
            name.clone(),
            json!({
                "Type": "AWS::IAM::ManagedPolicy",
                "Properties": {
                    "ManagedPolicyName": { "Fn::Sub": format!("Provisor{}-${{ClusterName}}", policy.name) },
                    "PolicyDocument": { "Fn::Sub": text },
                },
            }),
        );
        outputs.insert(name.clone(), json!({ "Value": { "Ref": name } }));
    }
    resources.insert("ControllerRole".into(), controller_role());
    resources.insert("NodeRole".into(), node_role());
    outputs.insert("ControllerRole".into(), json!({ "Value": { "Fn::GetAtt": ["ControllerRole", "Arn"] } }));
    resources.insert(
        "InterruptionQueue".into(),
        json!({
            "Type": "AWS::SQS::Queue",
            "Properties": {
                "QueueName": { "Ref": "ClusterName" },
                "MessageRetentionPeriod": 300,
                "SqsManagedSseEnabled": true,
            },
        }),
    );
    let queue = json!({ "Fn::GetAtt": ["InterruptionQueue", "Arn"] });
    resources.insert(
        "InterruptionQueuePolicy".into(),
        json!({
            "Type": "AWS::SQS::QueuePolicy",
            "Properties": {
                "Queues": [{ "Ref": "InterruptionQueue" }],
                "PolicyDocument": {
                    "Version": "2012-10-17",
                    "Statement": [
                        {
                            "Sid": "EventsMayBeSent",
                            "Effect": "Allow",
                            "Principal": { "Service": ["events.amazonaws.com", "sqs.amazonaws.com"] },
                            "Action": "sqs:SendMessage",
                            "Resource": queue,
                        },
                        {
                            "Sid": "NothingWithoutTls",
                            "Effect": "Deny",
                            "Principal": "*",
                            "Action": "sqs:*",
                            "Resource": queue,
                            "Condition": { "Bool": { "aws:SecureTransport": "false" } },
                        },
                    ],
                },
            },
        }),
    );
    for (name, pattern) in rules() {
        let target = json!({ "Id": "ProvisorInterruptionQueue", "Arn": queue });
        resources.insert(
            name.into(),
            json!({
                "Type": "AWS::Events::Rule",
                "Properties": { "EventPattern": pattern, "Targets": [target] },
            }),
        );
    }
    json!({
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "What Provisor needs in an AWS account: a role for the controller, one for machines, and a queue for notices about them.",
        "Parameters": {
            "ClusterName": {
                "Type": "String",
                "Description": "The cluster, as its machines are tagged. No two clusters of one account and region may share a name.",
            },
            "NodeRoleName": {
                "Type": "String",
                "Description": "The IAM role that machines run as.",
            },
            "CreateNodeRole": {
                "Type": "String",
                "AllowedValues": ["yes", "no"],
                "Default": "yes",
                "Description": "Whether that role is made here; no, if it is there already.",
            },
        },
        "Conditions": { "MakesNodeRole": { "Fn::Equals": [{ "Ref": "CreateNodeRole" }, "yes"] } },
        "Resources": resources,
        "Outputs": outputs,
    })
}
