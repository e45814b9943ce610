//! Spans of compilations and launches for the feature `tracing`. Without it, a span is nothing.

#[cfg(feature = "tracing")]
mod with_tracing {
    use tracing::span::EnteredSpan;

    /// Returns the span of the compilation of a kernel, which ends when it is dropped.
    pub(crate) fn compile(kernel: &str, backend: &dyn std::fmt::Display) -> EnteredSpan {
        tracing::info_span!(target: "cutlet", "compile", kernel, %backend).entered()
    }

    /// Returns the span of a launch on the host, which ends when it is dropped.
    pub(crate) fn launch(kernel: &str, grid: [u32; 3]) -> EnteredSpan {
        tracing::debug_span!(target: "cutlet", "launch", kernel, ?grid).entered()
    }
}

#[cfg(not(feature = "tracing"))]
mod without_tracing {
    /// No span.
    pub(crate) struct Nothing;

    #[inline(always)]
    pub(crate) fn compile(_: &str, _: &dyn std::fmt::Display) -> Nothing {
        Nothing
    }

    #[inline(always)]
    pub(crate) fn launch(_: &str, _: [u32; 3]) -> Nothing {
        Nothing
    }
}

#[cfg(feature = "tracing")]
pub(crate) use with_tracing::{compile, launch};
#[cfg(not(feature = "tracing"))]
pub(crate) use without_tracing::{compile, launch};
