// Makes src/lib/types.gen.ts from docs/openapi.json: one TypeScript type for each schema.
import { readFileSync, writeFileSync } from 'node:fs'

const description = JSON.parse(readFileSync(new URL('../../docs/openapi.json', import.meta.url), 'utf8'))

function typeOf(schema) {
  if (schema === true || schema === undefined) return 'unknown'
  if (schema.$ref) return schema.$ref.split('/').pop()
  if ('const' in schema) return JSON.stringify(schema.const)
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(' | ')
  const several = schema.anyOf ?? schema.oneOf
  if (several) return several.map(typeOf).join(' | ')
  if (Array.isArray(schema.type)) return schema.type.map((type) => typeOf({ ...schema, type })).join(' | ')
  switch (schema.type) {
    case 'string':
      return 'string'
    case 'integer':
    case 'number':
      return 'number'
    case 'boolean':
      return 'boolean'
    case 'null':
      return 'null'
    case 'array':
      return `Array<${typeOf(schema.items)}>`
    case 'object':
      return schema.properties ? shapeOf(schema) : `Record<string, ${schema.additionalProperties ? typeOf(schema.additionalProperties) : 'unknown'}>`
  }
  return 'unknown'
}

// What we read is always there; what callers write (`additionalProperties: false`) may be left out where it has a default.
function shapeOf(schema) {
  const required = new Set(schema.required ?? [])
  const fields = Object.entries(schema.properties ?? {}).map(([name, field]) => {
    const mark = required.has(name) ? '' : '?'
    return `  ${JSON.stringify(name)}${mark}: ${typeOf(field)}`
  })
  return `{\n${fields.join('\n')}\n}`
}

const lines = ['// Made by scripts/types.mjs from docs/openapi.json; not to be edited.', '']
for (const [name, schema] of Object.entries(description.components.schemas)) {
  lines.push(`export type ${name} = ${typeOf(schema)}`, '')
}
writeFileSync(new URL('../src/lib/types.gen.ts', import.meta.url), lines.join('\n'))
