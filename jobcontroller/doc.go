// Package jobcontroller turns edits of PackageRevisions into Jobs and the Jobs' results into contents.
//
// Read controller.go first: Reconcile observes, decides and acts. What it decides is in plan.go, a pure function.
package jobcontroller
