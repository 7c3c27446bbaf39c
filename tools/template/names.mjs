// Writes internal/repotest/names.json: the names that the Go checker needs of AWS's resource specification, and nothing else of it.
//   node tools/template/names.mjs > internal/repotest/names.json
import { createRequire } from "node:module";

const require = createRequire(import.meta.url);
const { loadAwsServiceSpecSync } = require("@aws-cdk/aws-service-spec");
const { version } = require("@aws-cdk/aws-service-spec/package.json");

const db = loadAwsServiceSpecSync();
const resources = new Map([...db.all("resource")].map((r) => [r.cloudFormationType, r]));
const types = {};

// nested names the type of a property: T, []T or {}T; empty where it has no names of its own, or one of several.
function nested(type, owner) {
  switch (type.type) {
    case "ref": {
      const definition = db.get("typeDefinition", type.reference.$ref);
      const name = `${owner}.${definition.name}`;
      add(name, definition.properties, owner);
      return name;
    }
    case "array":
      return wrap("[]", nested(type.element, owner));
    case "map":
      return wrap("{}", nested(type.element, owner));
    default:
      return "";
  }
}

const wrap = (prefix, name) => (name && !/^[[{]/.test(name) ? prefix + name : "");

function add(name, properties, owner) {
  if (types[name]) return;
  types[name] = {};
  for (const key of Object.keys(properties).sort()) types[name][key] = nested(properties[key].type, owner);
}

for (const [name, resource] of resources) if (name.startsWith("AWS::Serverless::")) add(name, resource.properties, name);
nested(resources.get("AWS::Lambda::Function").properties.LoggingConfig.type, "AWS::Lambda::Function");

const sorted = (o) => Object.fromEntries(Object.entries(o).sort(([a], [b]) => (a < b ? -1 : 1)));
const out = { Source: `@aws-cdk/aws-service-spec ${version}`, Types: sorted(types) };
process.stdout.write(JSON.stringify(out, null, 1) + "\n");
