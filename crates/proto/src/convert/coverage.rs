//! Ledgers and coverage. Reasons travel as text: one of a newer version is left out of the bounded
//! set, and its count is kept under `malformed` so that the account still balances.

use keelson_model::{
    Coverage, CoverageReason, LedgerCut, LossReason, ProgramState, ProgramStatus, UnixNanos,
    coverage::Interval, limits,
};

use super::{ConvertError, Problem, bounded};
use crate::telemetry as wire;

/// Programs, reasons and intervals that one message may name.
const COVERAGE_ENTRIES: usize = 256;

/// A probe's account on the wire.
#[must_use]
pub fn ledger_to_wire(probe: &str, cut: &LedgerCut) -> wire::Ledger {
    let loss = |(reason, count): (&LossReason, &u64)| wire::Loss {
        reason: reason.as_str().to_owned(),
        count: *count,
    };
    wire::Ledger {
        probe: probe.to_owned(),
        produced: cut.produced,
        delivered: cut.delivered,
        consumed: cut.consumed,
        held: cut.held,
        lost: cut.lost.iter().map(loss).collect(),
        out_of_scope: cut.out_of_scope,
    }
}

/// Name and account of a probe.
///
/// # Errors
/// A text is too long, or there are more losses than reasons could name.
pub fn ledger_from_wire(ledger: &wire::Ledger) -> Result<(String, LedgerCut), ConvertError> {
    bounded(&ledger.probe, "ledgers.probe")?;
    entries(ledger.lost.len(), "ledgers.lost")?;
    let mut cut = LedgerCut {
        produced: ledger.produced,
        delivered: ledger.delivered,
        consumed: ledger.consumed,
        held: ledger.held,
        out_of_scope: ledger.out_of_scope,
        ..LedgerCut::default()
    };
    for loss in &ledger.lost {
        let reason = LossReason::parse(&loss.reason).unwrap_or(LossReason::Malformed);
        cut.lose(reason, loss.count);
    }
    Ok((ledger.probe.clone(), cut))
}

/// Coverage on the wire.
#[must_use]
pub fn coverage_to_wire(coverage: &Coverage) -> wire::Coverage {
    let Coverage { programs, reasons, blind } = coverage;
    wire::Coverage {
        programs: programs.iter().map(program_to_wire).collect(),
        reasons: reasons.iter().map(|reason| reason.as_str().to_owned()).collect(),
        blind: blind
            .iter()
            .map(|blind| wire::Interval { from_unix_ns: blind.from.0, to_unix_ns: blind.to.0 })
            .collect(),
    }
}

/// Coverage from the wire; a reason of a newer version is left out.
///
/// # Errors
/// A text is too long or a list has too many entries.
pub fn coverage_from_wire(coverage: &wire::Coverage) -> Result<Coverage, ConvertError> {
    let wire::Coverage { programs, reasons, blind } = coverage;
    entries(programs.len(), "coverage.programs")?;
    entries(reasons.len(), "coverage.reasons")?;
    entries(blind.len(), "coverage.blind")?;
    let blind = |interval: &wire::Interval| Interval {
        from: UnixNanos(interval.from_unix_ns),
        to: UnixNanos(interval.to_unix_ns),
    };
    Ok(Coverage {
        programs: programs.iter().map(program_from_wire).collect::<Result<_, _>>()?,
        reasons: reasons.iter().filter_map(|reason| CoverageReason::parse(reason)).collect(),
        blind: coverage.blind.iter().map(blind).collect(),
    })
}

fn program_to_wire(status: &ProgramStatus) -> wire::ProgramStatus {
    let ProgramStatus { program, function, state, reason, hook } = status.clone();
    let state = match state {
        ProgramState::Attached => wire::ProgramState::Attached,
        ProgramState::Fallback => wire::ProgramState::Fallback,
        ProgramState::Missing => wire::ProgramState::Missing,
    };
    wire::ProgramStatus { program, function, state: state.into(), reason, hook }
}

fn program_from_wire(status: &wire::ProgramStatus) -> Result<ProgramStatus, ConvertError> {
    let wire::ProgramStatus { program, function, state, reason, hook } = status.clone();
    bounded(&program, "coverage.programs.program")?;
    bounded(&function, "coverage.programs.function")?;
    bounded(&hook, "coverage.programs.hook")?;
    if reason.len() > limits::REASON_TEXT_BYTES {
        let problem = Problem::TooLong { length: reason.len(), bound: limits::REASON_TEXT_BYTES };
        return Err(problem.at("coverage.programs.reason"));
    }
    let state = match wire::ProgramState::try_from(state) {
        Ok(wire::ProgramState::Attached) => ProgramState::Attached,
        Ok(wire::ProgramState::Fallback) => ProgramState::Fallback,
        // A state of a newer version is not known to serve.
        Ok(wire::ProgramState::Missing | wire::ProgramState::Unspecified) | Err(_) => {
            ProgramState::Missing
        }
    };
    Ok(ProgramStatus { program, function, state, reason, hook })
}

fn entries(length: usize, field: &'static str) -> Result<(), ConvertError> {
    if length > COVERAGE_ENTRIES {
        return Err(Problem::TooMany { length, bound: COVERAGE_ENTRIES }.at(field));
    }
    Ok(())
}
