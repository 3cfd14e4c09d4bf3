//! Two revisions → nodes, dollars and risk, as a report.
