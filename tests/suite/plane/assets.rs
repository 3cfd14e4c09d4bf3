//! Where the programs of a control plane are: built from their modules once, unless `KUBEBUILDER_ASSETS` names a folder.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The folder of `etcd`, `kube-apiserver` and the others. Never a silent skip: a test that needs a cluster fails without one.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match FOLDER.get_or_init(|| made_by("control-plane/ensure", &[])) {
        Ok(folder) => folder,
        Err(reason) => panic!("no control plane to test against: {reason}"),
    }
}

/// What a script of `tests/` prints: a folder or program that is ready to be used.
pub(crate) fn made_by(script: &str, arguments: &[&str]) -> Result<PathBuf, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(script);
    let output = Command::new(&script)
        .args(arguments)
        .output()
        .map_err(|error| format!("{} cannot run: {error}", script.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} failed ({}):\n{said}", script.display(), output.status));
    }
    let printed = String::from_utf8_lossy(&output.stdout);
    Ok(PathBuf::from(printed.trim()))
}
