//! The Python module. PyO3 appears here, in `wire`, in `worker`, in `template` and in the clone
//! calls only.

mod answer;

use pyo3::prelude::*;

/// Native core of `spade_async.sandbox`.
#[pymodule]
mod _sandbox_rs {
    use pyo3::create_exception;
    use pyo3::exceptions::{PyException, PyValueError};
    use pyo3::prelude::*;
    use pyo3::types::{PyDict, PyType};

    use super::answer::{self, Completion};
    use crate::capability::remedy;
    use crate::error::Fault;
    use crate::limits::Limits;
    use crate::pool::Pool;
    use crate::protocol::Kind;

    #[pymodule_export]
    use crate::wire::MessageCodec;

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
        module.add("JailBusy", module.py().get_type::<JailBusy>())?;
        module.add("RUNNER_SOURCE", crate::runner::SOURCE)
    }

    fn raise(fault: Fault) -> PyErr {
        match fault {
            Fault::Busy { .. } | Fault::Full { .. } => JailBusy::new_err(fault.to_string()),
            other => JailError::new_err(other.to_string()),
        }
    }

    /// (unix time, kind, profile, session, detail)
    type EventRow = (f64, &'static str, String, Option<u64>, String);

    fn kind_of(code: u8) -> PyResult<Kind> {
        Kind::from_code(code)
            .filter(|kind| !kind.loads() && *kind != Kind::Fork)
            .ok_or_else(|| PyValueError::new_err("kind"))
    }

    /// Run a blocking operation without the interpreter; a signal handler that raises ends it.
    fn blocking<T: Send>(
        py: Python<'_>,
        run: impl Send + FnOnce(crate::pool::Interrupted<'_>) -> Result<T, Fault>,
    ) -> PyResult<T> {
        let mut raised = None;
        let result = py.detach(|| {
            run(&mut || match Python::attach(|py| py.check_signals()) {
                Ok(()) => false,
                Err(error) => {
                    raised = Some(error);
                    true
                }
            })
        });
        match raised {
            Some(error) => Err(error),
            None => result.map_err(raise),
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
        fn open(
            &self,
            py: Python<'_>,
            source: &str,
            seed_hex: &str,
            profile: usize,
            forkable: bool,
        ) -> PyResult<u64> {
            py.detach(|| self.pool.open(source, seed_hex, profile, forkable))
                .map_err(raise)
        }

        /// Call a session: kind 1 reset (seed in hexadecimal), 2 step (action), 3 hint, 5 nothing.
        fn call(&self, py: Python<'_>, session: u64, kind: u8, body: &str) -> PyResult<u64> {
            let kind = kind_of(kind)?;
            py.detach(|| self.pool.call(session, kind, body.as_bytes()))
                .map_err(raise)
        }

        /// Copy a live session; the number names the copy and the operation.
        fn fork(&self, py: Python<'_>, session: u64, seed_hex: &str) -> PyResult<u64> {
            py.detach(|| self.pool.fork(session, seed_hex))
                .map_err(raise)
        }

        /// `open` that waits for the answer.
        fn open_now(
            &self,
            py: Python<'_>,
            source: &str,
            seed_hex: &str,
            profile: usize,
            forkable: bool,
        ) -> PyResult<(u64, Completion)> {
            let (session, done) = blocking(py, |interrupted| {
                self.pool
                    .open_now(source, seed_hex, profile, forkable, interrupted)
            })?;
            Ok((session, done.into()))
        }

        /// A worker with nothing loaded; the text of a fault if there is none.
        fn acquire_now(&self, py: Python<'_>, profile: usize) -> PyResult<(u64, Option<String>)> {
            let (session, failed) =
                blocking(py, |i| self.pool.acquire("", "0", profile, false, i))?;
            Ok((
                session,
                failed.map(|done| done.map_or_else(|text| text, |reply| reply.detail)),
            ))
        }

        /// `call` that waits for the answer.
        fn call_now(
            &self,
            py: Python<'_>,
            session: u64,
            kind: u8,
            body: &str,
        ) -> PyResult<Completion> {
            let kind = kind_of(kind)?;
            let body = body.as_bytes();
            blocking(py, |i| self.pool.call_now(session, kind, body, i)).map(Into::into)
        }

        /// One step each on many sessions, all sent before the first answer is read.
        fn step_many(
            &self,
            py: Python<'_>,
            steps: Vec<(u64, String)>,
        ) -> PyResult<Vec<Completion>> {
            let answers = blocking(py, |interrupted| {
                let calls: Vec<_> = steps
                    .iter()
                    .map(|(session, text)| (*session, Kind::Step, text.as_bytes()))
                    .collect();
                self.pool.call_many(&calls, interrupted)
            })?;
            Ok(answers.into_iter().map(Into::into).collect())
        }

        /// `fork` that waits for the answer.
        fn fork_now(
            &self,
            py: Python<'_>,
            session: u64,
            seed_hex: &str,
        ) -> PyResult<(u64, Completion)> {
            let (copy, done) = blocking(py, |i| self.pool.fork_now(session, seed_hex, i))?;
            Ok((copy, done.into()))
        }

        /// End a session without waiting.
        fn release(&self, py: Python<'_>, session: u64) -> PyResult<()> {
            py.detach(|| self.pool.release(session)).map_err(raise)
        }

        /// End a session's worker now, whatever it does.
        fn cancel(&self, py: Python<'_>, session: u64) -> PyResult<()> {
            py.detach(|| self.pool.cancel(session)).map_err(raise)
        }

        /// What a live session has used, by name; `None` once its worker is gone.
        fn used<'py>(&self, py: Python<'py>, session: u64) -> PyResult<Option<Bound<'py, PyDict>>> {
            let Some(used) = py.detach(|| self.pool.used(session)).map_err(raise)? else {
                return Ok(None);
            };
            let all = PyDict::new(py);
            all.set_item("calls", used.calls)?;
            all.set_item("wall_s", used.wall_s)?;
            all.set_item("bytes_in", used.bytes_in)?;
            all.set_item("bytes_out", used.bytes_out)?;
            all.set_item("cpu_ns", used.cpu_ns)?;
            all.set_item("peak_rss_bytes", used.peak_rss_bytes)?;
            all.set_item("private_bytes", used.private_bytes)?;
            all.set_item("minor_faults", used.faults.map(|f| f.0))?;
            all.set_item("major_faults", used.faults.map(|f| f.1))?;
            Ok(Some(all))
        }

        /// All completions since the last drain, by operation.
        fn drain(&self, py: Python<'_>) -> PyResult<Vec<(u64, Completion)>> {
            let all = py.detach(|| self.pool.drain()).map_err(raise)?;
            Ok(all
                .into_iter()
                .map(|(operation, done)| (operation, done.into()))
                .collect())
        }

        /// Descriptor that becomes readable when `drain` has something.
        fn done_fd(&self) -> i32 {
            self.pool.done_fd()
        }

        /// Level and layers of the jail, found out by doing.
        fn capabilities<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
            let report = py.detach(|| self.pool.report()).map_err(raise)?;
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
        fn stats(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, u64)>> {
            py.detach(|| self.pool.stats()).map_err(raise)
        }

        /// Wall seconds per call since the last drain.
        fn drain_latencies(&self, py: Python<'_>) -> PyResult<Vec<f64>> {
            py.detach(|| self.pool.drain_latencies()).map_err(raise)
        }

        /// Events since the last drain: (unix time, kind, profile, session, detail).
        fn drain_events(&self, py: Python<'_>) -> PyResult<Vec<EventRow>> {
            let all = py.detach(|| self.pool.drain_events()).map_err(raise)?;
            Ok(all
                .into_iter()
                .map(|e| (e.at, e.kind, e.profile, e.session, e.detail))
                .collect())
        }

        /// End everything; returns when no process is left.
        fn close(&self, py: Python<'_>) {
            py.detach(|| self.pool.close());
        }
    }

    /// Say once what replies are made of: outcomes by name, `Reply`, `CallReport`.
    #[pyfunction]
    fn use_records(
        outcomes: &Bound<'_, PyDict>,
        reply: &Bound<'_, PyType>,
        report: &Bound<'_, PyType>,
    ) -> PyResult<()> {
        answer::use_records(outcomes, reply, report)
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
