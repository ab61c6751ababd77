//! The Python module. PyO3 appears here, in `worker` and in `template` only.

use pyo3::prelude::*;

/// Native core of `spade_async.sandbox`.
#[pymodule]
mod _sandbox_rs {
    use std::time::Duration;

    use pyo3::create_exception;
    use pyo3::exceptions::{PyException, PyValueError};
    use pyo3::prelude::*;
    use pyo3::types::PyDict;

    use crate::capability::remedy;
    use crate::error::Fault;
    use crate::limits::Limits;
    use crate::pool::{Done, Pool};
    use crate::protocol::Kind;

    create_exception!(
        _sandbox_rs,
        JailError,
        PyException,
        "A fault of the jail itself."
    );
    create_exception!(
        _sandbox_rs,
        JailBusy,
        JailError,
        "The bounded queue is full."
    );

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("RUNNER_SOURCE", crate::runner::SOURCE)?;
        module.add("JailError", module.py().get_type::<JailError>())?;
        module.add("JailBusy", module.py().get_type::<JailBusy>())
    }

    fn raise(fault: Fault) -> PyErr {
        match fault {
            Fault::Busy { .. } => JailBusy::new_err(fault.to_string()),
            other => JailError::new_err(other.to_string()),
        }
    }

    /// (outcome, observation, reward, terminated, truncated, detail, wall_s, cpu_s, reply_bytes),
    /// or the text of a fault.
    type Answer = (
        &'static str,
        String,
        Option<f64>,
        bool,
        bool,
        String,
        f64,
        Option<f64>,
        usize,
    );

    #[derive(IntoPyObject)]
    enum Completion {
        Answer(Answer),
        Fault(String),
    }

    impl From<Done> for Completion {
        fn from(done: Done) -> Self {
            match done {
                Err(text) => Self::Fault(text),
                Ok(r) => Self::Answer((
                    r.outcome.as_str(),
                    r.observation,
                    r.reward,
                    r.terminated,
                    r.truncated,
                    r.detail,
                    r.wall_s,
                    r.cpu_s,
                    r.reply_bytes,
                )),
            }
        }
    }

    /// A running pool. Every method may be called from any thread of the process that started it.
    #[pyclass(frozen)]
    struct Core {
        pool: Pool,
    }

    #[pymethods]
    impl Core {
        #[new]
        fn start(py: Python<'_>, limits: &str) -> PyResult<Self> {
            let limits: Limits =
                toml::from_str(limits).map_err(|e| PyValueError::new_err(e.to_string()))?;
            let pool = py.detach(|| Pool::start(limits)).map_err(raise)?;
            Ok(Self { pool })
        }

        /// Ask for a worker and load a source; the number names the session and the operation.
        fn open(&self, py: Python<'_>, source: &str, seed_hex: &str) -> PyResult<u64> {
            py.detach(|| self.pool.open(source, seed_hex))
                .map_err(raise)
        }

        /// Call a session: kind 1 reset (seed in hexadecimal), 2 step (action), 3 hint.
        fn call(&self, py: Python<'_>, session: u64, kind: u8, body: &str) -> PyResult<u64> {
            let kind = Kind::from_code(kind).ok_or_else(|| PyValueError::new_err("kind"))?;
            py.detach(|| self.pool.call(session, kind, body.as_bytes()))
                .map_err(raise)
        }

        /// End a session without waiting.
        fn release(&self, py: Python<'_>, session: u64) -> PyResult<()> {
            py.detach(|| self.pool.release(session)).map_err(raise)
        }

        /// Wait for one operation; signals of the process are looked at twenty times a second.
        fn wait(&self, py: Python<'_>, operation: u64) -> PyResult<Completion> {
            loop {
                let patience = Duration::from_millis(50);
                let done = py
                    .detach(|| self.pool.wait(operation, patience))
                    .map_err(raise)?;
                if let Some(done) = done {
                    return Ok(done.into());
                }
                py.check_signals()?;
            }
        }

        /// All completions since the last drain, by operation.
        fn drain(&self, py: Python<'_>) -> Vec<(u64, Completion)> {
            let all = py.detach(|| self.pool.drain());
            all.into_iter()
                .map(|(operation, done)| (operation, done.into()))
                .collect()
        }

        /// Descriptor that becomes readable when `drain` has something.
        fn done_fd(&self) -> i32 {
            self.pool.done_fd()
        }

        /// Level and layers of the jail, found out by doing.
        fn capabilities<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
            let report = self.pool.report();
            let layers = PyDict::new(py);
            for layer in &report.layers {
                let entry = PyDict::new(py);
                entry.set_item("ok", layer.ok)?;
                entry.set_item("detail", &layer.detail)?;
                entry.set_item("remedy", if layer.ok { "" } else { remedy(&layer.name) })?;
                layers.set_item(&layer.name, entry)?;
            }
            let all = PyDict::new(py);
            all.set_item("level", report.level())?;
            all.set_item("layers", layers)?;
            Ok(all)
        }

        /// Counters and gauges by name.
        fn stats(&self, py: Python<'_>) -> Vec<(&'static str, u64)> {
            py.detach(|| self.pool.stats())
        }

        /// Wall seconds per call since the last drain.
        fn drain_latencies(&self, py: Python<'_>) -> Vec<f64> {
            py.detach(|| self.pool.drain_latencies())
        }

        /// End everything; returns when no process is left.
        fn close(&self, py: Python<'_>) {
            py.detach(|| self.pool.close());
        }
    }

    /// Entry of the exec'd broker.
    #[pyfunction]
    fn _broker_main() {
        crate::broker::main()
    }

    /// Entry of the exec'd template.
    #[pyfunction]
    fn _template_main(py: Python<'_>) {
        crate::template::main(py)
    }

    /// Entry of the exec'd template of the benches; see `crate::probe`.
    #[pyfunction]
    fn _probe_template() {
        crate::probe::template()
    }

    /// Entry of the exec'd far end of the benches' round trips.
    #[pyfunction]
    fn _probe_echo() {
        crate::probe::echo()
    }

    /// Nanoseconds of no-op round trips over two pipes, for the benches.
    #[pyfunction]
    fn _probe_round_trips(
        py: Python<'_>,
        requests: i32,
        replies: i32,
        count: usize,
    ) -> PyResult<Vec<u64>> {
        Ok(py.detach(|| crate::probe::round_trips(requests, replies, count))?)
    }
}
