//! User data as a machine reads it on its first boot. Written without the code that writes it, so that one checks the other.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// What a machine knows once it has read its user data.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    pub endpoint: String,
    /// PEM in base64.
    pub authority: String,
    pub labels: BTreeMap<String, String>,
    /// As a Node has them.
    pub taints: Vec<Value>,
    pub max_pods: Option<i64>,
}

/// `None` for a machine that is told of no cluster.
pub fn read(text: &str) -> Option<Told> {
    let told = if let Some(parts) = parts_of(text) {
        of_node_configs(&parts)
    } else if text.trim_start().starts_with("apiVersion: node.eks.aws/") {
        of_node_configs(&[text.to_owned()])
    } else if text.starts_with("#!") {
        of_script(text)
    } else {
        of_settings(text)?
    };
    Some(told).filter(|told| !told.endpoint.is_empty())
}

/// The NodeConfigs of a MIME archive.
fn parts_of(text: &str) -> Option<Vec<String>> {
    let (head, _) = text.split_once("\n\n").or_else(|| text.split_once("\r\n\r\n"))?;
    let boundary = head.lines().find(|line| line.to_lowercase().starts_with("content-type: multipart/"))?;
    let boundary = boundary.split_once("boundary=")?.1.split(';').next()?.trim().trim_matches('"');
    let unix = text.replace("\r\n", "\n");
    let border = format!("--{boundary}");
    let parts = unix.split(&border).skip(1).filter_map(|part| {
        let (head, body) = part.split_once("\n\n")?;
        head.contains("application/node.eks.aws").then(|| body.to_owned())
    });
    Some(parts.collect())
}

/// What comes last wins, field by field.
fn of_node_configs(documents: &[String]) -> Told {
    let mut spec = json!({});
    for document in documents {
        let document: Value = serde_saphyr::from_str(document).expect("a NodeConfig is YAML");
        merge(&mut spec, &document["spec"]);
    }
    let text =
        |pointer: &str| spec.pointer(pointer).and_then(Value::as_str).map(str::to_owned).unwrap_or_default();
    let flags = spec.pointer("/kubelet/flags").and_then(Value::as_array).cloned().unwrap_or_default();
    let labels = flags.iter().filter_map(|flag| flag.as_str()?.strip_prefix("--node-labels="));
    Told {
        endpoint: text("/cluster/apiServerEndpoint"),
        authority: text("/cluster/certificateAuthority"),
        labels: labels.flat_map(|list| pairs(list.trim_matches('"'))).collect(),
        taints: spec
            .pointer("/kubelet/config/registerWithTaints")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default(),
        max_pods: spec.pointer("/kubelet/config/maxPods").and_then(Value::as_i64),
    }
}

fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more.clone(),
    }
}

/// Bottlerocket's.
fn of_settings(text: &str) -> Option<Told> {
    let document: toml::Table = text.parse().ok()?;
    let settings = document.get("settings")?.get("kubernetes")?;
    let text = |key: &str| settings.get(key).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
    let table = |key: &str| settings.get(key).and_then(|value| value.as_table()).cloned().unwrap_or_default();
    let mut taints = Vec::new();
    for (key, said) in table("node-taints") {
        for each in said.as_array().into_iter().flatten().filter_map(|each| each.as_str()) {
            let (value, effect) = each.split_once(':').expect("value:Effect");
            taints.push(taint(&key, value, effect));
        }
    }
    let labels = table("node-labels");
    Some(Told {
        endpoint: text("api-server"),
        authority: text("cluster-certificate"),
        labels: labels
            .iter()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect(),
        taints,
        max_pods: settings.get("max-pods").and_then(|value| value.as_integer()),
    })
}

/// The flags that a script gives to EKS' bootstrap or to the kubelet.
fn of_script(text: &str) -> Told {
    let flag = |name: &str| {
        let (_, rest) = text.split_once(name)?;
        let value: String = rest
            .trim_start_matches(['=', ' '])
            .trim_start_matches(['"', '\''])
            .chars()
            .take_while(|letter| !letter.is_whitespace() && !matches!(letter, '"' | '\'' | '\\'))
            .collect();
        Some(value)
    };
    let taints = flag("--register-with-taints").unwrap_or_default();
    let taints = taints.split(',').filter_map(|each| {
        let (name, effect) = each.rsplit_once(':')?;
        let (key, value) = name.split_once('=').unwrap_or((name, ""));
        Some(taint(key, value, effect))
    });
    Told {
        endpoint: flag("--apiserver-endpoint").unwrap_or_default(),
        authority: flag("--b64-cluster-ca").unwrap_or_default(),
        labels: pairs(&flag("--node-labels").unwrap_or_default()).collect(),
        taints: taints.collect(),
        max_pods: flag("--max-pods").and_then(|number| number.parse().ok()),
    }
}

fn pairs(list: &str) -> impl Iterator<Item = (String, String)> {
    list.split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
}

fn taint(key: &str, value: &str, effect: &str) -> Value {
    let mut taint = json!({ "key": key, "effect": effect });
    if !value.is_empty() {
        taint["value"] = value.into();
    }
    taint
}

#[test]
fn every_form_of_user_data_says_the_same() {
    let expected = Told {
        endpoint: "https://api.east".into(),
        authority: "Y2E=".into(),
        labels: [("team".to_owned(), "web".to_owned()), ("tier".to_owned(), "1".to_owned())].into(),
        taints: vec![taint("gpu", "yes", "NoSchedule"), taint("new", "", "NoExecute")],
        max_pods: Some(29),
    };
    let document = r#"apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster: { name: east, apiServerEndpoint: "https://api.east", certificateAuthority: Y2E= }
  kubelet:
    config:
      maxPods: 29
      registerWithTaints: [{ key: gpu, value: "yes", effect: NoSchedule }, { key: new, effect: NoExecute }]
    flags: ["--node-labels=\"team=web,tier=1\""]
"#;
    assert_eq!(read(document).as_ref(), Some(&expected), "alone");
    let archive = format!(
        "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n--//\nContent-Type: text/x-shellscript\n\n\
         #!/bin/sh\necho\n--//\nContent-Type: application/node.eks.aws\n\nspec: {{ kubelet: {{ config: {{ maxPods: 5 }} }} }}\n\
         --//\nContent-Type: application/node.eks.aws\n\n{document}\n--//--\n"
    );
    assert_eq!(read(&archive).as_ref(), Some(&expected), "in an archive, the last of two");
    let settings = r#"[settings.kubernetes]
        api-server = "https://api.east"
        cluster-certificate = "Y2E="
        max-pods = 29
        [settings.kubernetes.node-labels]
        team = "web"
        tier = "1"
        [settings.kubernetes.node-taints]
        gpu = ["yes:NoSchedule"]
        new = [":NoExecute"]
    "#;
    assert_eq!(read(settings).as_ref(), Some(&expected), "Bottlerocket");
    let script = "#!/bin/bash\n/etc/eks/bootstrap.sh east --apiserver-endpoint 'https://api.east' --b64-cluster-ca 'Y2E=' \\\n  \
        --kubelet-extra-args '--node-labels=team=web,tier=1 --register-with-taints=gpu=yes:NoSchedule,new:NoExecute --max-pods=29'\n";
    assert_eq!(read(script).as_ref(), Some(&expected), "a script");
    assert_eq!(read(""), None);
    assert_eq!(read("hello"), None);
    assert_eq!(read("#!/bin/sh\necho hello\n"), None);
}
