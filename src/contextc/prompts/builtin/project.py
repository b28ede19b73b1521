"""The `project` fragment: the caller's text about the project, and the working directory."""

from contextc.prompts.fragment import PromptContext, PromptFragment


def render_project(surroundings: PromptContext) -> str:
    project = surroundings.project if surroundings.project and surroundings.project.strip() else ""
    directory = f"Working directory: {surroundings.directory}" if surroundings.directory else ""
    return "\n\n".join(filter(None, (project, directory)))


PROJECT = PromptFragment("project", render_project, priority=20)
