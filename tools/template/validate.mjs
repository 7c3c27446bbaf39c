// Prints what @aws/cloudformation-validate has to say about templates, from warnings up: one JSON object a line.
//   node validate.mjs TEMPLATE,TEMPLATE [RULE:LOGICAL_ID ...]   the rules that are set aside, each for one logical id
import { createRequire } from "node:module";

const { RegoEngine, TemplateFile } = createRequire(import.meta.url)("@aws/cloudformation-validate");
const [files, ...aside] = process.argv.slice(2);
const logicalIds = aside.map((a) => {
  const [ruleId, logicalId] = a.split(":");
  return { ruleId, logicalId };
});
const engine = new RegoEngine();
try {
  for (const file of files.split(",")) {
    const { diagnostics } = engine.validateStandard(new TemplateFile(file), { severityLevel: "WARN", exclude: { logicalIds } });
    for (const d of diagnostics) console.log(JSON.stringify({ file, rule: d.ruleId, severity: d.severity, line: d.startLine, of: d.entity?.logicalId ?? "", text: d.message }));
  }
} finally {
  engine.free();
}
