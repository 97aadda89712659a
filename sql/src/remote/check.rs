//! Checks statements before they are sent to a server. Only the statements that the local engine
//! allows are sent. A Spark server executes anything: it writes, reads any file and starts
//! programs, even in a SELECT. Therefore a statement is sent only if the parser here understands
//! all of it.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, Query, Select, SetExpr, Statement, TableFactor, Visit, Visitor,
};
use tprof_ui::errors::Failure;

use crate::allowed::{Refused, check as check_kind, first_words};
use crate::query_failure::{QueryFailure, excerpt};
use crate::statements::Source;
use crate::status::QUERY;

/// Table functions that generate rows and read nothing.
const OF_ROWS: [&str; 12] = [
    "explode",
    "explode_outer",
    "generate_series",
    "inline",
    "inline_outer",
    "json_tuple",
    "posexplode",
    "posexplode_outer",
    "range",
    "sequence",
    "stack",
    "unnest",
];
/// Functions that execute arbitrary code on the server, or that read files or other servers.
const DANGEROUS: [&str; 15] = [
    "from_avro",
    "from_protobuf",
    "from_xml",
    "http_request",
    "java_method",
    "read_files",
    "read_kafka",
    "reflect",
    "remote_query",
    "schema_of_xml",
    "secret",
    "to_avro",
    "to_protobuf",
    "try_reflect",
    "try_secret",
];
/// Prefix of further dangerous functions, which send data to a language model.
const ASKS_A_MODEL: &str = "ai_";
/// Functions that only tprof has, and their equivalents.
const OWN: [(&str, &str); 5] = [
    ("breakdown", "the view `breakdown`, or rank_summary"),
    ("interval_union", "the view `device_time` counts what runs at once; breakdown has its sums"),
    ("overlap", "greatest(least(end_a, end_b) - greatest(start_a, start_b), 0)"),
    ("report", "rank_summary, rank_kernels, findings and other tables of what reports print"),
    ("stragglers", "the view `stragglers`"),
];

/// A relation that a statement names.
#[derive(Clone, Debug)]
pub struct NamedRelation {
    /// Name in lower case.
    pub name: String,
    /// Whether the name has several parts, as names of the server's own relations have.
    pub has_parts: bool,
    /// Whether it may be a query defined by a surrounding WITH.
    pub is_defined: bool,
    /// Line and column in the statement.
    pub place: (u64, u64),
}

/// Refuses statements that do more than read tables. The caller checks which tables they read.
pub fn check(source: &Source) -> Result<(), QueryFailure> {
    check_kind(&source.parsed)?;
    let mut statements = Vec::new();
    statement_of(&source.parsed, &mut statements);
    for statement in statements {
        if matches!(statement, Statement::ShowVariable { .. }) {
            let hint = "DESCRIBE table, SHOW TABLES";
            return Err(Refused { what: first_words(&statement.to_string()), hint }.into());
        }
        if let ControlFlow::Break(failed) = statement.visit(&mut Checker { text: &source.text }) {
            return Err(*failed);
        }
    }
    Ok(())
}

/// Returns all relations that a statement names.
pub fn relations(parsed: &Parsed) -> Vec<NamedRelation> {
    let mut gathered = Relations::default();
    let mut statements = Vec::new();
    statement_of(parsed, &mut statements);
    for statement in statements {
        let _ = statement.visit(&mut gathered);
    }
    gathered.all
}

fn statement_of<'p>(parsed: &'p Parsed, all: &mut Vec<&'p Statement>) {
    match parsed {
        Parsed::Statement(statement) => all.push(statement),
        Parsed::Explain(explain) => statement_of(&explain.statement, all),
        _ => {}
    }
}

struct Checker<'t> {
    text: &'t str,
}

impl Checker<'_> {
    fn function(&self, name: &ObjectName) -> ControlFlow<Box<QueryFailure>> {
        let Some(ident) = name.0.last().and_then(|part| part.as_ident()) else {
            return ControlFlow::Continue(());
        };
        let name = ident.value.to_lowercase();
        let failure = if let Some((_, instead)) = OWN.iter().find(|(own, _)| *own == name) {
            Failure::new(format!("the server has no function `{name}`, which is tprof's"))
                .cause("with --remote a query has only the server's functions")
                .hint(format!("{instead}; or the query without --remote"))
        } else if DANGEROUS.contains(&name.as_str()) || name.starts_with(ASKS_A_MODEL) {
            Failure::new(format!("`{name}` is refused: queries only read their tables"))
                .cause("it can do anything that the server can")
                .hint("SHOW FUNCTIONS")
        } else {
            return ControlFlow::Continue(());
        };
        ControlFlow::Break(Box::new(self.failed(failure, ident)))
    }

    fn rows_of(&self, name: &ObjectName) -> ControlFlow<Box<QueryFailure>> {
        self.function(name)?;
        let ident = name.0.last().and_then(|part| part.as_ident());
        match ident.filter(|ident| !OF_ROWS.contains(&ident.value.to_lowercase().as_str())) {
            Some(ident) => {
                let failure = Failure::new(format!("rows of `{}` are refused", ident.value))
                    .cause("it is not known to read nothing but its arguments")
                    .hint(format!("known are {}", OF_ROWS.join(", ")));
                ControlFlow::Break(Box::new(self.failed(failure, ident)))
            }
            None => ControlFlow::Continue(()),
        }
    }

    fn failed(&self, failure: Failure, at: &Ident) -> QueryFailure {
        QueryFailure::Query {
            failure: failure.code(QUERY),
            excerpt: excerpt(self.text, at.span.start.line, at.span.start.column),
        }
    }
}

fn refused(what: &str, hint: &'static str) -> ControlFlow<Box<QueryFailure>> {
    ControlFlow::Break(Box::new(Refused { what: what.to_owned(), hint }.into()))
}

impl Visitor for Checker<'_> {
    type Break = Box<QueryFailure>;

    /// Visits the statement itself, and statements within queries: `WITH … INSERT`.
    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<Box<QueryFailure>> {
        match check_kind(&Parsed::Statement(Box::new(statement.clone()))) {
            Err(refused) => ControlFlow::Break(Box::new(refused.into())),
            Ok(()) => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Box<QueryFailure>> {
        match &select.into {
            Some(_) => refused("SELECT INTO", "-o FILE --format parquet writes a result"),
            None => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Box<QueryFailure>> {
        match factor {
            TableFactor::Table { name, args: Some(_), .. } | TableFactor::Function { name, .. } => {
                self.rows_of(name)
            }
            TableFactor::TableFunction { expr: Expr::Function(of), .. } => self.rows_of(&of.name),
            TableFactor::TableFunction { .. } => refused("TABLE(…)", "the rows of a table"),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<Box<QueryFailure>> {
        match expression {
            Expr::Function(function) => self.function(&function.name),
            _ => ControlFlow::Continue(()),
        }
    }
}

#[derive(Default)]
struct Relations {
    all: Vec<NamedRelation>,
    /// Names that each surrounding query defines by WITH.
    own: Vec<BTreeSet<String>>,
}

impl Relations {
    fn add(&mut self, parts: &[String], place: (u64, u64)) {
        let name = parts.join(".").to_lowercase();
        let has_parts = parts.len() > 1;
        let is_defined = !has_parts && self.own.iter().any(|own| own.contains(&name));
        self.all.push(NamedRelation { name, has_parts, is_defined, place });
    }

    fn of_body(&mut self, body: &SetExpr) {
        match body {
            SetExpr::Table(table) => {
                let parts = [&table.schema_name, &table.table_name].map(|part| part.clone());
                let parts: Vec<String> = parts.into_iter().flatten().collect();
                self.add(&parts, (0, 0));
            }
            SetExpr::SetOperation { left, right, .. } => {
                self.of_body(left);
                self.of_body(right);
            }
            _ => {}
        }
    }
}

impl Visitor for Relations {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let with = query.with.iter().flat_map(|with| &with.cte_tables);
        self.own.push(with.map(|of| of.alias.name.value.to_lowercase()).collect());
        self.of_body(&query.body);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.own.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, args: None, .. } = factor {
            let idents: Vec<&Ident> = name.0.iter().filter_map(|part| part.as_ident()).collect();
            let start = idents.first().map(|first| first.span.start);
            let parts: Vec<String> = idents.iter().map(|ident| ident.value.clone()).collect();
            self.add(&parts, start.map_or((0, 0), |start| (start.line, start.column)));
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::{Dialect, parse};

    fn of(text: &str) -> Source {
        parse(text, Dialect::Server).unwrap_or_else(|error| panic!("{text}: {error:?}")).remove(0)
    }

    #[test]
    fn statements_that_only_read_go_to_a_server() {
        for text in [
            "WITH a AS (SELECT 1) SELECT * FROM a JOIN `kernels` USING (rank)",
            "SELECT rank, max_by(name, duration_ns) FILTER (WHERE rank > 0) FROM kernels GROUP BY ALL",
            "SELECT explode(sequence(1, 3)) AS x, CAST(1 AS STRING), 7 DIV 2",
            "SELECT * FROM range(10) LATERAL VIEW explode(array(1)) t AS y",
            "EXPLAIN FORMATTED SELECT 1",
            "EXPLAIN SELECT 1",
            "SHOW TABLES",
            "DESCRIBE kernels",
            "SHOW COLUMNS FROM kernels",
            "CREATE OR REPLACE VIEW a AS SELECT \"text\" AS x FROM kernels",
        ] {
            assert!(check(&of(text)).is_ok(), "{text}: {:?}", check(&of(text)));
        }
    }

    #[test]
    fn statements_that_do_more_than_read_are_refused() {
        for (text, what) in [
            ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", "INSERT INTO"),
            ("SELECT 1 INTO t", "SELECT INTO"),
            ("INSERT INTO t VALUES (1)", "INSERT INTO"),
            ("CREATE TABLE t AS SELECT 1", "CREATE TABLE"),
            ("CREATE TABLE t USING parquet LOCATION '/x'", "CREATE TABLE"),
            ("DROP VIEW kernels", "DROP VIEW"),
            ("TRUNCATE TABLE t", "TRUNCATE TABLE"),
            ("MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE", "MERGE INTO"),
            ("SET spark.sql.shuffle.partitions = 1", "SET"),
            ("CACHE TABLE t", "CACHE TABLE"),
            ("USE other", "USE"),
            ("EXPLAIN EXTENDED DELETE FROM t", "DELETE FROM"),
            ("SELECT (SELECT reflect('java.lang.System', 'exit', 1))", "`reflect`"),
            ("SELECT * FROM read_files('/etc')", "`read_files`"),
            ("SELECT * FROM anything('/etc')", "`anything`"),
            ("SELECT interval_union(1, 2)", "no function `interval_union`, which is tprof's"),
            ("SELECT * FROM report('kernels')", "no function `report`, which is tprof's"),
        ] {
            let refused = match parse(text, Dialect::Server) {
                Ok(all) => format!("{:?}", check(&all[0]).expect_err(text)),
                Err(error) => panic!("{text}: {error:?}"),
            };
            assert!(refused.contains(what), "{text}: {refused}");
        }
    }

    #[test]
    fn relations_are_found_everywhere_in_a_statement() {
        let text = "WITH kernels AS (SELECT * FROM Kernels WHERE rank IN (SELECT rank FROM `ranks`)) \
                    SELECT * FROM kernels UNION ALL TABLE a.steps";
        let named = relations(&of(text).parsed);
        let names: BTreeSet<&str> = named.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, BTreeSet::from(["a.steps", "kernels", "ranks"]));
        let defined: Vec<_> = named.iter().filter(|one| one.is_defined).collect();
        assert!(defined.iter().all(|one| one.name == "kernels") && !defined.is_empty());
    }

    #[test]
    fn a_with_query_does_not_permit_a_relation_of_the_server() {
        for text in [
            "WITH `text./etc/x` AS (SELECT 1) SELECT * FROM text.`/etc/x`",
            "SELECT * FROM (WITH zz AS (SELECT 1) SELECT * FROM zz) t, zz",
        ] {
            assert!(relations(&of(text).parsed).iter().any(|one| !one.is_defined), "{text}");
        }
    }
}
