//! What a name says of its value: that it is a secret, or that it tells where one is and what it is like.
//!
//! The last word decides: `db-password` is a secret, `password-path` the place of one, `secret-access-key` again a secret.

/// Words for what is kept from others. They are found inside of longer words too: `PGPASSWORD`, `secretName`.
const SECRETS: [&str; 12] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "authkey",
    "encryptionkey",
    "privatekey",
    "secretkey",
    "authorization",
];
/// The same in two words.
const PAIRS: [(&str, &str); 4] = [("api", "key"), ("private", "key"), ("signing", "key"), ("mysql", "pwd")];
/// Words that are a secret only at the end of a name.
const LAST: [&str; 2] = ["jwt", "psk"];
/// The same in two words.
const LAST_PAIRS: [(&str, &str); 7] = [
    ("access", "key"),
    ("account", "key"),
    ("auth", "key"),
    ("encryption", "key"),
    ("hmac", "key"),
    ("master", "key"),
    ("shared", "key"),
];
/// Words that end like `dbpass` and are no passwords.
const NO_PASSWORDS: [&str; 7] =
    ["bypass", "compass", "encompass", "overpass", "surpass", "trespass", "underpass"];
/// Nothing longer is a name.
const LONGEST: usize = 256;
/// Last words of names that speak of a secret, in the singular.
const ABOUT: [&str; 108] = [
    "address",
    "age",
    "alg",
    "algorithm",
    "alias",
    "arn",
    "audience",
    "backend",
    "branch",
    "broker",
    "bucket",
    "certificate",
    "chart",
    "checksum",
    "class",
    "command",
    "commit",
    "controller",
    "count",
    "created",
    "dataset",
    "date",
    "day",
    "description",
    "digest",
    "dir",
    "directory",
    "driver",
    "duration",
    "enabled",
    "encoding",
    "endpoint",
    "engine",
    "etag",
    "expiration",
    "expiry",
    "field",
    "file",
    "filename",
    "fingerprint",
    "folder",
    "format",
    "function",
    "header",
    "helper",
    "hook",
    "host",
    "hostname",
    "hour",
    "id",
    "identifier",
    "image",
    "injector",
    "interval",
    "issuer",
    "kind",
    "kms",
    "label",
    "lambda",
    "length",
    "lifetime",
    "limit",
    "location",
    "manager",
    "max",
    "min",
    "mode",
    "model",
    "mount",
    "name",
    "namespace",
    "operator",
    "owner",
    "param",
    "parameter",
    "path",
    "pattern",
    "period",
    "plugin",
    "policy",
    "port",
    "prefix",
    "provider",
    "ref",
    "reference",
    "region",
    "release",
    "required",
    "revision",
    "role",
    "rotation",
    "scope",
    "second",
    "sha",
    "size",
    "source",
    "status",
    "stdin",
    "store",
    "tag",
    "template",
    "timeout",
    "ttl",
    "type",
    "updated",
    "uri",
    "url",
    "version",
];
/// Last words of names of digests. That of a password is as good as the password to those who guess.
const DIGESTS: [&str; 8] = ["crc32", "hash", "md5", "sha1", "sha224", "sha256", "sha384", "sha512"];
/// Words behind which a secret is an object of the cluster, by its name: `imagePullSecrets`, `existingSecret`.
const OBJECTS: [&str; 2] = ["existing", "pull"];
/// Words behind the last one that tell which, and not what.
const WHICH: [&str; 10] =
    ["default", "dev", "live", "new", "old", "prod", "production", "stage", "staging", "test"];

/// Whether a name says that its value is secret.
pub(super) fn says_secret(name: &str) -> bool {
    // What stands before a slash is whose name it is, but for a digest of the whole.
    let (owner, name) = end(name).rsplit_once('/').unwrap_or(("", end(name)));
    let words = words(name);
    let Some(last) = words.iter().rposition(|word| !is_which(word)) else { return false };
    let is_named =
        words.iter().any(|word| is_secret(word)) || has_pair(&words) || ends_in_secret(&words[..=last]);
    if !is_named {
        return false;
    }
    let has = |wanted: &str| words.iter().any(|word| word == wanted);
    let is_digest = matches!(owner, "checksum" | "digest")
        || DIGESTS.contains(&words[last].as_str()) && !words.iter().any(|word| word.starts_with("pass"));
    let is_object = words[last].starts_with("secret")
        && last > 0
        && OBJECTS.iter().any(|word| words[last - 1].ends_with(word));
    !(is_digest || is_object || has("kms") || has("public") || is_about(&words[last]))
}

/// Whether it is the name of the one key of AWS that is known by its length.
pub(super) fn is_aws_secret_key(name: &str) -> bool {
    let letters = end(name).chars().filter(char::is_ascii_alphanumeric);
    letters.map(|letter| letter.to_ascii_lowercase()).collect::<String>().contains("secretaccesskey")
}

/// Whether it is the name of a password, which people choose of words.
pub(super) fn is_of_password(name: &str) -> bool {
    let words = words(end(name));
    let last = words.iter().rfind(|word| !is_which(word));
    last.is_some_and(|word| word.starts_with("pass") || word == "psk" || is_short_for_password(word))
}

/// Whether it is the name of a key that encrypts, which may be one that others keep.
pub(super) fn is_of_encryption(name: &str) -> bool {
    words(end(name)).iter().any(|word| word.starts_with("encryption"))
}

/// As much of a name as can be one.
fn end(name: &str) -> &str {
    &name[name.ceil_char_boundary(name.len().saturating_sub(LONGEST))..]
}

fn is_secret(word: &str) -> bool {
    SECRETS.contains(&word.strip_suffix('s').unwrap_or(word))
}

fn has_pair(words: &[String]) -> bool {
    words.windows(2).any(|two| PAIRS.contains(&(two[0].as_str(), two[1].as_str())))
}

/// Whether the last of these words is one for a secret, alone or with the one before.
fn ends_in_secret(words: &[String]) -> bool {
    let Some((last, before)) = words.split_last() else { return false };
    let is_pair = |first: &String| LAST_PAIRS.contains(&(first, last.strip_suffix('s').unwrap_or(last)));
    LAST.contains(&last.as_str()) || is_short_for_password(last) || before.last().is_some_and(is_pair)
}

fn is_short_for_password(word: &str) -> bool {
    (word.ends_with("pass") || word.ends_with("pwd")) && !NO_PASSWORDS.contains(&word)
}

fn is_about(word: &str) -> bool {
    let has = |word: &str| ABOUT.binary_search(&word).is_ok();
    has(word) || word.strip_suffix('s').is_some_and(has) || word == "policies" || word == "directories"
}

fn is_which(word: &str) -> bool {
    WHICH.contains(&word) || word.bytes().all(|b| b.is_ascii_digit())
}

/// The words of a name in small letters: `secretVersion`, `SECRET_VERSION` and `secretversion` have the same two.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for part in name.split(|letter: char| !letter.is_ascii_alphanumeric()) {
        let letters: Vec<char> = part.chars().collect();
        let mut start = 0;
        for at in 1..=letters.len() {
            let is_end = at == letters.len() || {
                let (before, here) = (letters[at - 1], letters[at]);
                let begins_word = letters.get(at + 1).is_some_and(char::is_ascii_lowercase);
                here.is_ascii_uppercase() && (!before.is_ascii_uppercase() || begins_word)
            };
            if is_end {
                let word: String = letters[start..at].iter().map(char::to_ascii_lowercase).collect();
                words.extend(parted(&word));
                start = at;
            }
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// A word parted around the last word for a secret that is in it.
fn parted(word: &str) -> Vec<String> {
    // What parts texts into tokens is no token.
    if word.starts_with("tokeniz") || word.starts_with("tokenis") {
        return vec![word.to_owned()];
    }
    let found = SECRETS.iter().filter_map(|secret| Some((word.rfind(secret)?, secret.len())));
    let Some((start, length)) = found.max_by_key(|(start, length)| (start + length, *length)) else {
        return vec![word.to_owned()];
    };
    // `secretstore` is a store, and `secretsmanager` a manager of several.
    let behind = &word[start + length..];
    let end = start + length + usize::from(behind.starts_with('s') && !is_about(behind));
    vec![word[..start].to_owned(), word[start..end].to_owned(), word[end..].to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_about_secrets_can_be_looked_up() {
        assert!(ABOUT.is_sorted());
    }

    #[test]
    fn the_last_word_decides() {
        for name in [
            "token",
            "DB_PASSWORD",
            "PGPASSWORD",
            "dbPassword",
            "mysql-root-password-2",
            "DB_PASSWORD_PROD",
            "secret-access-key",
            "aws_secret_access_key",
            "accessTokens",
            "APIKey",
            "apikey",
            "private-key",
            "signing.private_key",
            "password-hash",
            "admin_password_sha256",
            "clientSecret",
            "vault.example.com/token",
            "X-Vault-Token",
            "authorization",
            "pass",
            "db_pass",
            "DB_PWD",
            "dbpass",
            "access-key",
            "s3AccessKey",
            "accesskey",
            "auth-key",
            "encryption_key",
            "ENCRYPTION_KEY_2",
            "jwt",
            "wifi-psk",
            "storage-account-key",
            "shared_keys",
        ] {
            assert!(says_secret(name), "{name}");
        }
        for name in [
            "name",
            "key",
            "SECRET_ID",
            "secretName",
            "secretname",
            "secretsmanager",
            "SECRET_NAMES",
            "password-path",
            "tokenfile",
            "TOKEN_FILE_PROD",
            "PASSWORD_HASH_ALGORITHM",
            "secrets-kms-key",
            "secretstore",
            "secret-store",
            "secrets.example.com/team",
            "token-public-key",
            "discovery-token-ca-cert-hash",
            "checksum/secret",
            "accessTokenTTL",
            "authorization-mode",
            "password-stdin",
            "SEALED_SECRETS_CHECKSUM",
            "SECRETS_STORE_CSI_SHA256",
            "TOKENIZER",
            "TOKENIZER_MODEL",
            "HF_TOKEN_MODEL",
            "imagePullSecrets",
            "image-pull-secret",
            "auth.existingSecret",
            "access-key-id",
            "accessKeyID",
            "encryption-key-arn",
            "jwt-issuer",
            "jwt-audience",
            "psk-identity",
            "pass-through",
            "passthrough",
            "proxy-bypass",
            "compass",
            "access",
            "master",
            "kms-encryption-key",
        ] {
            assert!(!says_secret(name), "{name}");
        }
    }
}
