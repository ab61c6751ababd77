//! What holds on this machine, found out by doing it, and which level that makes.
//!
//! A level is a set of layers that must hold. What each of them stops, who gets it and what to do
//! about a missing layer is told in `docs/levels.md`.

use serde::{Deserialize, Serialize};

use crate::error::Fault;

/// Takes what is there, down to `FLOOR`, and says what it is.
pub const AUTO: &str = "auto";
/// Named levels, highest first.
pub const LEVELS: [&str; 4] = ["strict", "rootless", "container", "minimal"];
/// What is below every named level.
const BELOW: &str = "reduced";

/// Layers without which nothing runs at any level: the filter and its test, and the file system
/// of a profile that promises one.
const FLOOR: [&str; 3] = ["seccomp", "self_test", "files"];
/// Layers that `minimal` demands besides.
const MINIMAL: [&str; 2] = ["no_new_privs", "rlimits"];
/// The one layer that `container` demands besides.
const CONTAINER: &str = "landlock";
/// The one layer that `rootless` does without.
const ROOTLESS_LACKS: &str = "cgroup";

/// One layer of the jail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Stable name.
    pub name: String,
    /// Whether it holds.
    pub ok: bool,
    /// What was seen.
    pub detail: String,
}

/// All layers, in the order they were tried.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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

    /// Add what one profile's template found; a layer holds if it holds for every profile.
    pub fn merge(&mut self, found: &Self, profile: &str) {
        for layer in &found.layers {
            match self
                .layers
                .iter_mut()
                .find(|known| known.name == layer.name)
            {
                None => self.layers.push(layer.clone()),
                Some(known) if known.ok && !layer.ok => {
                    known.ok = false;
                    known.detail = format!("profile {profile}: {}", layer.detail);
                }
                Some(_) => {}
            }
        }
    }

    /// Whether a layer was tried and holds.
    pub fn holds(&self, name: &str) -> bool {
        self.layers
            .iter()
            .any(|layer| layer.name == name && layer.ok)
    }

    /// Names of the layers that do not hold, in the order they were tried.
    pub fn missing(&self) -> Vec<&str> {
        let missing = self.layers.iter().filter(|layer| !layer.ok);
        missing.map(|layer| layer.name.as_str()).collect()
    }

    /// The highest level that holds, and what is missing: "strict", "rootless, without cgroup".
    /// "reduced" is below every named level.
    pub fn level(&self) -> String {
        let holds = |level: &&&str| self.first_missing(level).is_none();
        let name = LEVELS.iter().find(holds).unwrap_or(&BELOW);
        let missing = self.missing();
        if missing.is_empty() {
            (*name).to_owned()
        } else {
            format!("{name}, without {}", missing.join(", "))
        }
    }

    /// The first layer that a level demands and that does not hold.
    fn first_missing(&self, level: &str) -> Option<&Layer> {
        let missing = |layer: &&Layer| !layer.ok && demands(level, &layer.name);
        self.layers.iter().find(missing)
    }

    /// Whether a pool that asks for `level` may run with what holds.
    ///
    /// # Errors
    /// The first layer that the level demands and that is missing, with what was seen and what to
    /// do; a level that is none.
    pub fn judge(&self, level: &str) -> Result<(), Fault> {
        if level != AUTO && !LEVELS.contains(&level) {
            let names = LEVELS.join(", ");
            let text = format!("{level:?} is none: choose {AUTO} or one of {names}");
            return Err(Fault::broken("level", text));
        }
        let Some(layer) = self.first_missing(level) else {
            return Ok(());
        };
        let remedy = remedy(&layer.name);
        let lower = if demands(AUTO, &layer.name) {
            remedy.to_owned()
        } else {
            format!("{remedy}; level {level:?} demands it, \"auto\" runs without it")
        };
        Err(Fault::MissingLayer {
            layer: layer.name.clone(),
            detail: layer.detail.clone(),
            remedy: lower,
        })
    }
}

/// Whether a level demands a layer. A layer this does not know belongs to the highest two.
fn demands(level: &str, layer: &str) -> bool {
    let minimal = FLOOR.contains(&layer) || MINIMAL.contains(&layer);
    match level {
        "strict" => true,
        "rootless" => layer != ROOTLESS_LACKS,
        "container" => minimal || layer == CONTAINER,
        "minimal" => minimal,
        _ => FLOOR.contains(&layer),
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
             kernel.apparmor_restrict_unprivileged_userns=0 or an AppArmor profile with userns) \
             or run the container with CAP_SYS_ADMIN"
        }
        "files" => {
            "a profile with files needs a mount namespace, Landlock and Linux 5.13 (see empty_root \
             and landlock); profiles without files run without them"
        }
        "landlock" => "use Linux 5.13 or newer with landlock in the lsm= list",
        "identity" => "run unprivileged, or as root with CAP_SETUID and CAP_SETGID",
        "pids" => "start in a delegated cgroup or as root, or leave out profiles with threads",
        "cgroup" => {
            "start in a delegated cgroup (systemd-run --user --scope -p Delegate=yes, from a leaf \
             of it), or as root with /sys/fs/cgroup writable"
        }
        "no_new_privs" => "use Linux 3.5 or newer",
        "rlimits" => "raise the hard limits of this process (ulimit -H)",
        _ => "see docs/levels.md",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [&str; 12] = [
        "cgroup",
        "pid_namespace",
        "network_namespace",
        "ipc_namespace",
        "identity",
        "empty_root",
        "rlimits",
        "no_new_privs",
        "landlock",
        "seccomp",
        "worker_pid_namespace",
        "self_test",
    ];

    fn without(missing: &[&str]) -> Report {
        let mut report = Report::default();
        for name in ALL {
            let seen = if missing.contains(&name) {
                Err(std::io::Error::other("seen"))
            } else {
                Ok(())
            };
            report.note(name, &seen, "");
        }
        report
    }

    #[test]
    fn each_level_is_the_highest_for_what_it_does_without() {
        let spaces = ["pid_namespace", "worker_pid_namespace", "empty_root"];
        for (missing, level) in [
            (&[][..], "strict"),
            (&["cgroup"], "rootless, without cgroup"),
            (&["identity"], "container, without identity"),
            (
                &spaces,
                "container, without pid_namespace, empty_root, worker_pid_namespace",
            ),
            (&["landlock"], "minimal, without landlock"),
            (&["rlimits"], "reduced, without rlimits"),
        ] {
            assert_eq!(without(missing).level(), level);
        }
    }

    #[test]
    fn a_level_refuses_what_it_demands_and_nothing_else() {
        let demanded = |level: &str| -> Vec<&str> {
            let refused = |name: &&str| without(&[name]).judge(level).is_err();
            ALL.into_iter().filter(refused).collect()
        };
        assert_eq!(demanded("strict"), ALL);
        assert_eq!(demanded("rootless"), ALL[1..]);
        let container = [
            "rlimits",
            "no_new_privs",
            "landlock",
            "seccomp",
            "self_test",
        ];
        assert_eq!(demanded("container"), container);
        let minimal = ["rlimits", "no_new_privs", "seccomp", "self_test"];
        assert_eq!(demanded("minimal"), minimal);
        assert_eq!(demanded("auto"), ["seccomp", "self_test"]);
        for level in LEVELS.into_iter().chain([AUTO]) {
            without(&[]).judge(level).expect("everything holds");
        }
    }

    #[test]
    fn a_refusal_names_the_layer_what_was_seen_and_the_next_move() {
        let text = match without(&["empty_root"]).judge("rootless") {
            Ok(()) => String::new(),
            Err(fault) => fault.to_string(),
        };
        for part in ["empty_root", "seen", "max_user_namespaces", "auto"] {
            assert!(text.contains(part), "{text}");
        }
        let text = match without(&[]).judge("Strict") {
            Ok(()) => String::new(),
            Err(fault) => fault.to_string(),
        };
        assert!(text.contains("rootless"), "{text}");
    }

    #[test]
    fn a_layer_holds_if_it_holds_for_every_profile() {
        let mut all = without(&[]);
        all.merge(&without(&["landlock"]), "numpy");
        assert_eq!(all.missing(), ["landlock"]);
        assert_eq!(all.layers[8].detail, "profile numpy: seen");
        all.merge(&without(&[]), "compute");
        assert_eq!(all.missing(), ["landlock"]);
        let text = toml::to_string(&all).expect("TOML");
        let back: Report = toml::from_str(&text).expect("the same shape");
        assert_eq!(back, all);
    }
}
