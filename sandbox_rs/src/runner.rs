//! The Python part of the jail, as one text: it needs no files where it runs.

/// Source of the runner. It defines `prepare`, whose handlers load and call one environment.
pub const SOURCE: &str = concat!(
    include_str!("../runner/hooks.py"),
    include_str!("../runner/breaches.py"),
    include_str!("../runner/values.py"),
    include_str!("../runner/clock.py"),
    include_str!("../runner/seeding.py"),
    include_str!("../runner/warming.py"),
    include_str!("../runner/forms.py"),
    include_str!("../runner/answers.py"),
    include_str!("../runner/runner.py"),
);
