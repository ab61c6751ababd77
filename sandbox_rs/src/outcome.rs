//! What became of a call into untrusted code: the closed set of `spade_async.types.Outcome`.

/// What became of a call. The strings are those of the Python enumeration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// A well-formed value came back.
    Finished = 0,
    /// The code raised.
    Exception = 1,
    /// The contract forbids what it returned.
    BadValue = 2,
    /// A deadline passed.
    TimedOut = 3,
    /// The memory limit was hit.
    OverMemory = 4,
    /// The reply was above the byte cap.
    OverOutput = 5,
    /// A refused system call ended the call.
    RefusedCall = 6,
    /// The worker died or left by itself.
    Crashed = 7,
    /// The worker wrote something that is not a frame.
    ProtocolViolation = 8,
}

/// All outcomes, in the order of their codes.
pub const ALL: [Outcome; 9] = [
    Outcome::Finished,
    Outcome::Exception,
    Outcome::BadValue,
    Outcome::TimedOut,
    Outcome::OverMemory,
    Outcome::OverOutput,
    Outcome::RefusedCall,
    Outcome::Crashed,
    Outcome::ProtocolViolation,
];

impl Outcome {
    /// The outcome of a code on the wire, if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        ALL.get(usize::from(code)).copied()
    }

    /// Stable string of the Python enumeration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Exception => "exception",
            Self::BadValue => "bad_value",
            Self::TimedOut => "timed_out",
            Self::OverMemory => "over_memory",
            Self::OverOutput => "over_output",
            Self::RefusedCall => "refused_call",
            Self::Crashed => "crashed",
            Self::ProtocolViolation => "protocol_violation",
        }
    }
}

/// Answer of one call, as the host hands it to Python.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// What became of the call.
    pub outcome: Outcome,
    /// Text of reset, step or hint.
    pub observation: String,
    /// Reward of a step; always finite.
    pub reward: Option<f64>,
    /// The episode ended.
    pub terminated: bool,
    /// The episode was cut.
    pub truncated: bool,
    /// Why, when the call did not finish.
    pub detail: String,
    /// Wall seconds from request to reply.
    pub wall_s: f64,
    /// CPU seconds of the worker, read from outside; `None` where the clock cannot be read.
    pub cpu_s: Option<f64>,
    /// Bytes of the reply frame.
    pub reply_bytes: usize,
}

impl Reply {
    /// A reply that carries no value.
    pub fn failed(outcome: Outcome, detail: impl Into<String>) -> Self {
        Self {
            outcome,
            observation: String::new(),
            reward: None,
            terminated: false,
            truncated: false,
            detail: detail.into(),
            wall_s: 0.0,
            cpu_s: None,
            reply_bytes: 0,
        }
    }
}

/// Name of a signal number, for details.
pub fn signal_name(signal: i32) -> String {
    let name = match signal {
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGABRT => "SIGABRT",
        libc::SIGKILL => "SIGKILL",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGILL => "SIGILL",
        libc::SIGSYS => "SIGSYS",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGTRAP => "SIGTRAP",
        _ => return format!("signal {signal}"),
    };
    name.to_owned()
}
