//! What holds on this machine, found out by doing it.

use serde::{Deserialize, Serialize};

use crate::error::Fault;

/// Layers without which nothing runs: the filter, its test, and the file system of a profile that
/// promises one.
const NEEDED: [&str; 3] = ["seccomp", "self_test", "files"];

/// One layer of the jail.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Layer {
    /// Stable name.
    pub name: String,
    /// Whether it holds.
    pub ok: bool,
    /// What was seen.
    pub detail: String,
}

/// All layers, in the order they were tried.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    /// The layers.
    pub layers: Vec<Layer>,
}

impl Report {
    /// Note a layer that was tried.
    pub fn note<T>(&mut self, name: &str, tried: &std::io::Result<T>, detail: &str) {
        let layer = Layer {
            name: name.to_owned(),
            ok: tried.is_ok(),
            detail: tried
                .as_ref()
                .map_or_else(ToString::to_string, |_| detail.to_owned()),
        };
        self.layers.push(layer);
    }

    /// Whether a layer was tried and holds.
    pub fn holds(&self, name: &str) -> bool {
        self.layers
            .iter()
            .any(|layer| layer.name == name && layer.ok)
    }

    /// "full", or "reduced" with the names of what is missing.
    pub fn level(&self) -> String {
        let missing: Vec<_> = self
            .layers
            .iter()
            .filter(|l| !l.ok)
            .map(|l| l.name.as_str())
            .collect();
        if missing.is_empty() {
            "full".to_owned()
        } else {
            format!("reduced: without {}", missing.join(", "))
        }
    }

    /// Whether a pool may run with what holds.
    ///
    /// # Errors
    /// The first layer that is missing and must not be: those of `NEEDED` always, any in `strict`.
    pub fn judge(&self, strict: bool) -> Result<(), Fault> {
        let missing = self
            .layers
            .iter()
            .find(|l| !l.ok && (strict || NEEDED.contains(&l.name.as_str())));
        match missing {
            None => Ok(()),
            Some(layer) => Err(Fault::MissingLayer {
                layer: layer.name.clone(),
                detail: layer.detail.clone(),
                remedy: remedy(&layer.name).to_owned(),
            }),
        }
    }
}

/// What a user can do about a missing layer.
pub fn remedy(name: &str) -> &'static str {
    match name {
        "seccomp" => {
            "use a kernel with seccomp filters (CONFIG_SECCOMP_FILTER); there is no way around it"
        }
        "self_test" => {
            "a refused call passed inside the jail: do not run untrusted code here, report this"
        }
        "pid_namespace"
        | "worker_pid_namespace"
        | "network_namespace"
        | "ipc_namespace"
        | "empty_root" => {
            "allow user namespaces (sysctl user.max_user_namespaces > 0, \
             kernel.apparmor_restrict_unprivileged_userns=0) or run the container with CAP_SYS_ADMIN; \
             level=\"auto\" runs without it"
        }
        "files" => {
            "a profile with files needs a mount namespace, Landlock and Linux 5.13 (see empty_root \
             and landlock); profiles without files run without them"
        }
        "landlock" => {
            "use Linux 5.13 or newer with landlock in the lsm= list; level=\"auto\" runs without it"
        }
        "identity" => {
            "run unprivileged, or as root with CAP_SETUID and CAP_SETGID; level=\"auto\" runs without it"
        }
        _ => "level=\"auto\" runs without it",
    }
}
