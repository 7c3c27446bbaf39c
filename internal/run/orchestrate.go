package run

// ForPlan reports whether a request is made for a run's plan. Such a reply is no inference.
func (l Lifecycle) ForPlan() bool {
	return l == LifecyclePlan || l == LifecycleRoute || l == LifecycleSynthesis
}
