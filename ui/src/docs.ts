// The interactive API page: Swagger UI over /openapi.json, with requests to this server. The API key stays in memory.
import 'swagger-ui-dist/swagger-ui.css'
import SwaggerUI from 'swagger-ui-dist/swagger-ui-es-bundle.js'

SwaggerUI({
  url: '/openapi.json',
  dom_id: '#docs',
  deepLinking: true,
  defaultModelsExpandDepth: -1,
  filter: true,
  displayRequestDuration: true,
  tryItOutEnabled: true,
  validatorUrl: null,
})
